"""Goal: whoever is killed whenever, a group that commits what it has processed skips no record, and
one that processes what it has committed reads none twice; in both group protocols.
Method: four groups of two members each (`group_reader`, processes of their own) over one topic that
a producer writes to all the time; members and the broker are killed at random moments and started
again; in the end what each group has processed is compared, record by record, with the topic.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.group_reader import SESSION_MS
from tests.compat.confluent import create_topic, new_name, producer, read
from tests.compat.nodes import OttlaNode, wait_until
from tests.patience import SECONDS_MAX
from tests.seeds import seed_for

KILLS = int(os.environ.get("OTTLA_GROUP_KILLS", "5"))
MEMBERS = 2
PARTITIONS = 3
READER = Path(__file__).with_name("group_reader.py")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(SESSION_MS // 10),
    "offsets.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
}
KINDS = tuple(itertools.product(("classic", "consumer"), ("after", "before")))

Place = tuple[int, int]


class Processed(NamedTuple):
    place: Place
    value: str


class Group:
    """Its members, and the files in which they keep what they have processed."""

    def __init__(self, topic: str, kind: tuple[str, str], directory: Path) -> None:
        self.protocol, self.mode = kind
        self.name = new_name(f"{self.protocol}-{self.mode}")
        self._topic = topic
        self._directory = directory / self.name
        self._directory.mkdir()
        self._members: list[subprocess.Popen[bytes] | None] = [None] * MEMBERS

    def keep_going(self, bootstrap: str, dice: random.Random) -> None:
        for number, member in enumerate(self._members):
            if member is None or member.poll() is not None:
                self._members[number] = self._start(bootstrap, number, dice.randrange(2**32))

    def _start(self, bootstrap: str, number: int, seed: int) -> subprocess.Popen[bytes]:
        path = str(self._directory / f"{number}.txt")
        arguments = (bootstrap, self._topic, self.name, self.protocol, self.mode, path, str(seed))
        with (self._directory / "said.log").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, str(READER), *arguments], stdout=said, stderr=said
            )

    def kill(self, number: int) -> None:
        member = self._members[number]
        if member is not None:
            member.kill()
            member.wait()

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._directory.glob("*.txt"))

    def processed(self) -> list[Processed]:
        found = []
        for path in self._directory.glob("*.txt"):
            for line in path.read_text().splitlines():
                partition, offset, value = line.split(" ")
                found.append(Processed((int(partition), int(offset)), value))
        return found

    def is_at_the_end(self, bootstrap: str) -> bool:
        """Whether it has committed all that there is."""
        looker = Consumer({"bootstrap.servers": bootstrap, "group.id": self.name, "log_level": 0})
        places = [TopicPartition(self._topic, part) for part in range(PARTITIONS)]
        try:
            committed = looker.committed(places, SECONDS_MAX)
            ends = [looker.get_watermark_offsets(place, SECONDS_MAX)[1] for place in places]
        except KafkaException:
            return False  # the broker was killed a moment ago, and loads what was committed
        finally:
            looker.close()
        return [one.offset for one in committed] == ends


class Load:
    """A producer that goes on until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._sender = producer(
            bootstrap,
            {"enable.idempotence": True, "linger.ms": 2, "reconnect.backoff.max.ms": 100},
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        count = 0
        while not self._stopping.wait(0.01):
            for _ in range(5):
                self._sender.produce(self._topic, str(count), partition=count % PARTITIONS)
                count += 1
            self._sender.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def flush(self) -> None:
        assert self._sender.flush(SECONDS_MAX) == 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path / "node", SETTINGS)
    node.start()
    yield node
    node.close()


def test_killed_at_random_moments_groups_skip_nothing_or_read_nothing_twice(
    node: OttlaNode, tmp_path: Path
) -> None:
    dice = random.Random(seed_for("kill groups"))
    topic = create_topic(node.bootstrap, PARTITIONS)
    groups = [Group(topic, kind, tmp_path) for kind in KINDS]
    load = Load(node.bootstrap, topic)
    try:
        trouble(node, groups, dice)
        load.stop()
        load.flush()
        catch_up(node, groups, dice)
    finally:
        load.stop()
        for group in groups:
            for number in range(MEMBERS):
                group.kill(number)
    stored = {
        (message.partition() or 0, message.offset() or 0): (message.value() or b"").decode()
        for message in read(node.bootstrap, topic, partitions=range(PARTITIONS))
    }
    for group in groups:
        assert faults(group.mode, group.processed(), stored) == [], group.name


def trouble(node: OttlaNode, groups: list[Group], dice: random.Random) -> None:
    for number in range(KILLS):
        for group in groups:
            group.keep_going(node.bootstrap, dice)
        # In the middle of work: at first of all groups, then of one at least.
        wait_for_work(groups, dice.randrange(1, 3000), 1 if number else len(groups))
        if number % 2:
            node.kill()
            node.start()
        for group in groups:
            if dice.random() < 0.5:
                group.kill(dice.randrange(MEMBERS))


def wait_for_work(groups: list[Group], new_bytes: int, count: int) -> None:
    """Until so many groups have processed so much more."""
    wanted = [group.size() + new_bytes for group in groups]

    def is_at_work() -> bool:
        done = [group.size() >= size for group, size in zip(groups, wanted, strict=True)]
        return sum(done) >= count

    wait_until(is_at_work, SECONDS_MAX, "the groups go on")


def catch_up(node: OttlaNode, groups: list[Group], dice: random.Random) -> None:
    def is_done() -> bool:
        for group in groups:
            group.keep_going(node.bootstrap, dice)
        return all(group.is_at_the_end(node.bootstrap) for group in groups)

    wait_until(is_done, SECONDS_MAX, "the groups are at the end")


# -- the judge ------------------------------------------------------------------------------------


def faults(mode: str, processed: Iterable[Processed], stored: dict[Place, str]) -> list[str]:
    """What must not be, in the order of the topic; at most a few."""
    counts: Counter[Place] = Counter()
    found: list[str] = []
    for place, value in processed:
        counts[place] += 1
        if stored.get(place) != value:
            found.append(f"{place} is {stored.get(place)!r}, and {value!r} was read")
    if mode == "after":
        found += (f"{place} was skipped" for place in sorted(stored) if not counts[place])
    else:
        found += (
            f"{place} was read {count} times"
            for place, count in sorted(counts.items())
            if count > 1
        )
        if not counts:
            found.append("nothing was read")
    return found[:5]


def test_the_judge_sees_what_must_not_be() -> None:
    stored = {(0, 0): "a", (0, 1): "b", (1, 0): "c"}
    all_of_it = [Processed(place, value) for place, value in stored.items()]
    assert faults("after", all_of_it, stored) == []
    assert faults("after", all_of_it * 2, stored) == [], "it may read twice"
    assert faults("after", all_of_it[1:], stored) == ["(0, 0) was skipped"]
    assert faults("before", all_of_it, stored) == []
    assert faults("before", all_of_it[1:], stored) == [], "it may skip"
    assert faults("before", [*all_of_it, all_of_it[2]], stored) == ["(1, 0) was read 2 times"]
    assert faults("before", [], stored) == ["nothing was read"]
    changed = [Processed((0, 0), "x")]
    assert faults("before", changed, stored) == ["(0, 0) is 'a', and 'x' was read"]
