"""Goal: what `ottla.testing` promises to people who test their own programs with it.
Method: stock clients against the broker inside this very process.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.base.errors import ConfigError
from ottla.runtime.posix_files import PosixFile
from ottla.testing import Broker
from tests.compat.confluent import (
    create_topic,
    producer,
    read_values,
    send_values,
    watermarks,
)
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX


def test_a_stock_client_uses_it_like_any_broker() -> None:
    with Broker() as broker:
        topic = create_topic(broker.bootstrap)
        send_values(broker.bootstrap, topic, [b"one", b"two"])
        assert read_values(broker.bootstrap, topic) == [b"one", b"two"]


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        create_topic(broker.bootstrap)
        data = Path(broker.data_dir)
        assert data.exists()
    assert not data.exists()
    left = [one for one in set(threading.enumerate()) - before if "ottla" in one.name]
    assert left == []


def test_a_week_passes_in_a_moment() -> None:
    with Broker({"log.retention.check.interval.ms": 1000}) as broker:
        topic = create_topic(broker.bootstrap, configs={"retention.ms": "604800000"})
        send_values(broker.bootstrap, topic, [b"old"] * 3)
        assert watermarks(broker.bootstrap, topic) == (0, 3)
        broker.advance(days=8)
        wait_until(
            lambda: watermarks(broker.bootstrap, topic) == (3, 3),
            SECONDS_MAX,
            "what is old is gone",
        )


def test_a_restart_keeps_the_data_and_the_port() -> None:
    with Broker() as broker:
        topic = create_topic(broker.bootstrap)
        send_values(broker.bootstrap, topic, [b"kept"])
        address = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == address
        assert read_values(broker.bootstrap, topic) == [b"kept"]


def test_settings_have_kafkas_names() -> None:
    with Broker({"num.partitions": 3, "auto.create.topics.enable": False}) as broker:
        topic = create_topic(broker.bootstrap, partitions=-1)
        send_values(broker.bootstrap, topic, [b"x"])


def test_a_data_dir_in_use_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)), pytest.raises(Exception, match="in use"):
        Broker(data_dir=str(tmp_path)).start()


def test_a_data_dir_may_be_a_path(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert broker.data_dir == str(tmp_path)
        assert (tmp_path / "meta.properties").exists()


def test_several_run_side_by_side() -> None:
    with Broker() as one, Broker() as other:
        topic = create_topic(one.bootstrap)
        send_values(one.bootstrap, topic, [b"here"])
        assert one.bootstrap != other.bootstrap
        assert read_values(one.bootstrap, topic) == [b"here"]


def test_a_stop_right_after_a_roll_is_clean() -> None:
    """The sync of the closed segment is still under way then."""
    for _ in range(5):
        with Broker() as broker:
            topic = create_topic(broker.bootstrap, configs={"retention.ms": "604800000"})
            send_values(broker.bootstrap, topic, [b"old"])
            broker.advance(days=8)
            broker.stop()
            assert Path(broker.data_dir, ".kafka_cleanshutdown").exists()


def test_with_flush_messages_an_acknowledgement_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So does whoever reads. Those that come meanwhile are answered together by the next sync."""
    syncing, go_on = threading.Event(), threading.Event()
    syncs: list[Path] = []
    real = PosixFile.sync

    def slow(file: PosixFile) -> None:
        path = Path("/proc/self/fd", str(file.fileno())).readlink()
        if path.suffix != ".log" or not path.parent.name.startswith(topic):
            real(file)  # checkpoints and other topics are synced when it is their time
            return
        syncs.append(path)
        syncing.set()
        assert go_on.wait(SECONDS_MAX)
        real(file)

    with Broker() as broker:
        topic = create_topic(broker.bootstrap, configs={"flush.messages": "1"})
        monkeypatch.setattr(PosixFile, "sync", slow)
        producers = [producer(broker.bootstrap, {"linger.ms": 0}) for _ in range(4)]
        producers[0].produce(topic, b"first")
        producers[0].flush(0.2)
        assert syncing.wait(SECONDS_MAX)
        assert len(producers[0]) == 1, "it was acknowledged before it was on the disk"
        for gathering in producers[1:]:
            gathering.produce(topic, b"gathered")
        log = Path(broker.data_dir, f"{topic}-0", "00000000000000000000.log")
        wait_until(lambda: _stored(producers, log) == 3, SECONDS_MAX, "the others")
        assert [len(waiting) for waiting in producers] == [1, 1, 1, 1]
        assert watermarks(broker.bootstrap, topic) == (0, 0), "a loss of power could take it back"
        go_on.set()
        assert [waiting.flush(SECONDS_MAX) for waiting in producers] == [0, 0, 0, 0]
        assert watermarks(broker.bootstrap, topic) == (0, 4)
        assert len(syncs) == 2, "one for the first, one for all that gathered meanwhile"


def _stored(producers: list[Producer], log: Path) -> int:
    for one in producers:
        one.poll(0)
    return log.read_bytes().count(b"gathered")


@pytest.mark.ottla(num_partitions=2)
def test_the_fixture_gives_a_fresh_one(ottla_broker: Broker) -> None:
    topic = create_topic(ottla_broker.bootstrap)
    send_values(ottla_broker.bootstrap, topic, [b"by fixture"])
    assert read_values(ottla_broker.bootstrap, topic) == [b"by fixture"]


def test_a_broker_that_does_not_start_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    broker = Broker({"log.retention.ms": "soon"})
    with pytest.raises(ConfigError), broker:
        pass
    assert not Path(broker.data_dir).exists()
    assert [one for one in set(threading.enumerate()) - before if "ottla" in one.name] == []


def test_a_setting_that_means_nothing_is_told() -> None:
    with (
        pytest.warns(UserWarning, match="num.partition is no setting"),
        Broker({"num.partition": 3}),
    ):
        pass
