"""Goal: a disk that takes no more writes costs the clients of that disk, and nobody else.
Method: a broker process that may not write files beyond a size (the kernel refuses the write, as it
does on a full disk), with two log dirs; then a start without the limit, which must find everything.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.compat.confluent import create_topic, read_values, send_values
from tests.compat.nodes import OttlaNode
from tests.patience import SECONDS_MAX
from tests.ports import free_port

FILE_BYTES_MAX = 2 << 20
# The last one takes as long as this; those before it must not, on whatever machine.
IMPATIENT = {"retries": 0, "message.timeout.ms": 15_000}


class FailingDiskNode(OttlaNode):
    limited = True

    def __init__(self, directory: Path) -> None:
        self.dirs = [directory / "one", directory / "two"]
        self.metrics_port = free_port()
        super().__init__(
            directory,
            {
                "log.dirs": ",".join(map(str, self.dirs)),
                "ottla.metrics.listener": f"127.0.0.1:{self.metrics_port}",
            },
        )

    def command(self) -> list[str]:
        command = super().command()
        return ["prlimit", f"--fsize={FILE_BYTES_MAX}", *command] if self.limited else command

    def health(self) -> str:
        address = f"http://127.0.0.1:{self.metrics_port}/healthz"
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as page:
            text: str = page.read().decode()
            return text

    def dir_of(self, topic: str) -> Path:
        return next(path for path in self.dirs if (path / f"{topic}-0").exists())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FailingDiskNode]:
    node = FailingDiskNode(tmp_path)
    node.start()
    yield node
    if node.process is not None:
        node.stop()


def test_a_full_disk_takes_its_log_dir_offline_and_nothing_else(node: FailingDiskNode) -> None:
    filled, other = create_topic(node.bootstrap), create_topic(node.bootstrap)
    assert node.dir_of(filled) != node.dir_of(other), "two topics, two log dirs"
    acknowledged: list[bytes] = []
    with pytest.raises(KafkaException) as failure:
        for number in range(100):
            value = f"{number}:".encode() + bytes(100_000)
            send_values(node.bootstrap, filled, [value], IMPATIENT)
            acknowledged.append(value)
    # librdkafka retries a storage error for as long as it may, and then names its own time-out.
    assert failure.value.args[0].name() in ("KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT")
    assert len(acknowledged) > 10
    assert str(node.dir_of(filled)) in node.health(), "the health page names the log dir"
    send_values(node.bootstrap, other, [b"goes on"])
    assert read_values(node.bootstrap, other) == [b"goes on"]
    assert "Traceback" not in node.log_text()
    node.stop()
    node.limited = False
    node.start()
    assert read_values(node.bootstrap, filled)[: len(acknowledged)] == acknowledged
    send_values(node.bootstrap, filled, [b"room again"])
    assert read_values(node.bootstrap, filled)[-1] == b"room again"


def test_a_disk_that_is_not_there_at_the_start_costs_what_is_on_it(node: FailingDiskNode) -> None:
    topics = [create_topic(node.bootstrap) for _ in range(2)]
    on_first, on_second = sorted(topics, key=lambda topic: node.dirs.index(node.dir_of(topic)))
    for topic in topics:
        send_values(node.bootstrap, topic, [b"from before"])
    node.stop()
    second = node.dirs[1]
    away = second.with_name("away")
    second.rename(away)
    second.write_text("a disk that was not mounted")
    node.start()
    assert str(second) in node.health()
    send_values(node.bootstrap, on_first, [b"goes on"])
    assert read_values(node.bootstrap, on_first) == [b"from before", b"goes on"]
    with pytest.raises(KafkaException):
        send_values(
            node.bootstrap, on_second, [b"lost?"], {"retries": 0, "message.timeout.ms": 2000}
        )
    new = create_topic(node.bootstrap)
    send_values(node.bootstrap, new, [b"new ones go where they can"])
    assert "Traceback" not in node.log_text()
    node.stop()
    second.unlink()
    away.rename(second)
    node.start()
    assert read_values(node.bootstrap, on_second) == [b"from before"]
    assert read_values(node.bootstrap, on_first) == [b"from before", b"goes on"]
    assert read_values(node.bootstrap, new) == [b"new ones go where they can"]
