"""The exactly-once loop: whatever dies when, what is read is written once, and in order.

A client that dies is played by closing its sockets in the middle of everything, at a point drawn by
chance, without a word to the broker; some are real processes, killed. `OTTLA_PROCESS_DEATHS` says
how many of the first there are, `OTTLA_PROCESS_KILLS` how many of the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import pytest

from ottla.client import Admin, Consumer, Output, Producer, Record, process
from ottla.client.aio import AsyncConsumer, AsyncProducer
from ottla.client.aio import process as aio_process
from ottla.client.errors import ConfigError, FencedError
from tests.client.admin_calls import create_topic
from tests.client.copier import TRANSACTION_RECORDS
from tests.client.reading import stored
from tests.compat.nodes import REPOSITORY, Node, wait_until
from tests.seeds import seed_for

DEATHS = int(os.environ.get("OTTLA_PROCESS_DEATHS", "15"))
KILLS = int(os.environ.get("OTTLA_PROCESS_KILLS", "5"))
PARTITIONS = 3
RECORDS = 300
STEPS_MAX = 59
"""Of one that dies."""
TRANSACTIONS_MAX = 6
"""Of one that is killed; the next takes about so long:"""
A_TRANSACTION_S = 0.03
VISITS = 3
PATIENCE_S = 120


def fill(bootstrap: str, topic: str, count: int = RECORDS) -> list[list[bytes]]:
    create_topic(bootstrap, topic, PARTITIONS)
    create_topic(bootstrap, f"{topic}-copy", PARTITIONS)
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            value = b"%d" % number
            producer.send(topic, value, partition=number % PARTITIONS)
            expected[number % PARTITIONS].append(value)
    return expected


def copied(bootstrap: str, topic: str, *, decided: bool = False) -> list[list[bytes]]:
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for record in stored(bootstrap, f"{topic}-copy", committed=True, decided=decided):
        found[record.partition].append(record.value or b"")
    return found


def settings_of(bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"copies {topic}",
        "group.instance.id": "copier",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }


class Died(BaseException):
    """Thrown where a client dies; not an Exception, so that nothing handles it."""


class Mortal:
    """Dies when something has been done so often: `step` is called before and after everything."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Died


class MortalProducer(Producer):
    mortal = Mortal(1 << 60)

    def send(self, *arguments: Any, **named: Any) -> Any:
        self.mortal.step()
        return super().send(*arguments, **named)

    def send_offsets(self, *arguments: Any, **named: Any) -> None:
        self.mortal.step()
        super().send_offsets(*arguments, **named)
        self.mortal.step()

    def commit_transaction(self, timeout_s: float | None = None) -> None:
        self.mortal.step()
        super().commit_transaction(timeout_s)
        self.mortal.step()

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        if self.mortal.left <= 0:
            raise Died  # the dead abort nothing
        super().abort_transaction(timeout_s)

    def die(self) -> None:
        self._shell.close()


def live_until_death(bootstrap: str, topic: str, steps: int, is_over: Callable[[], bool]) -> None:
    producer = MortalProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.mortal = Mortal(steps)
    consumer = Consumer(settings_of(bootstrap, topic))
    consumer.subscribe(topic)

    def copy(record: Record) -> Output:
        producer.mortal.step()
        return Output(f"{topic}-copy", record.value, record.key, None, record.partition)

    try:
        process(consumer, producer, copy, is_over=is_over, max_records=9)
        producer.close()
    except Died:
        producer.die()
    finally:
        consumer._shell.close()  # without leaving: the dead do not say goodbye


def test_a_loop_that_dies_anywhere_is_exact(cluster: str, topic: str) -> None:
    # Each record takes two steps at least. Without any left nobody would die, for ever.
    count = DEATHS * STEPS_MAX // 2 + 1
    expected = fill(cluster, topic, count)
    chance = random.Random(seed_for("deaths"))
    for _ in range(DEATHS):
        live_until_death(cluster, topic, chance.randint(1, STEPS_MAX), lambda: False)
    live_until_death(
        cluster, topic, 1 << 60, lambda: sum(map(len, copied(cluster, topic))) == count
    )
    assert copied(cluster, topic) == expected


def kill_somewhere(bootstrap: str, topic: str, chance: random.Random) -> None:
    """A copier is killed after some transactions, at any moment of the next."""
    with copier(bootstrap, topic) as process:
        assert process.stdout is not None
        for _ in range(chance.randint(1, TRANSACTIONS_MAX)):
            assert process.stdout.readline(), "it ended by itself"
        select.select([process.stdout], [], [], chance.uniform(0, A_TRANSACTION_S))


@contextlib.contextmanager
def copier(bootstrap: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.client.copier", bootstrap, topic, f"{topic}-copy"]
    # Without a buffer: what is not read yet must be seen where it is waited for.
    with subprocess.Popen(command, bufsize=0, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        try:
            yield process
            assert process.poll() is None, "it ended by itself"
        finally:
            process.send_signal(signal.SIGKILL)


def test_a_loop_that_is_killed_is_exact(cluster: str, topic: str) -> None:
    # So many that none of them ever waits for more.
    count = KILLS * (TRANSACTIONS_MAX + 1) * TRANSACTION_RECORDS
    expected = fill(cluster, topic, count)
    chance = random.Random(seed_for("kills"))
    for _ in range(KILLS):
        kill_somewhere(cluster, topic, chance)
    with copier(cluster, topic):
        wait_until(lambda: sum(map(len, copied(cluster, topic))) == count, PATIENCE_S, "the rest")
    assert copied(cluster, topic) == expected


class ComingAndGoing:
    """One member stays, a guest comes and goes, and records keep coming meanwhile."""

    def __init__(self, bootstrap: str, topic: str, how: dict[str, str]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._settings = {**settings_of(bootstrap, topic), "group.instance.id": None, **how}
        self._fed = 0
        self.expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.all_is_fed = threading.Event()

    def copy(self, name: str, is_over: Callable[[int], bool]) -> None:
        """Until it is over, which may depend on how many records it has read."""
        seen = 0

        def once(record: Record) -> Output:
            nonlocal seen
            seen += 1
            return Output(f"{self._topic}-copy", record.value, None, None, record.partition)

        with (
            Consumer(self._settings) as consumer,
            Producer(
                bootstrap_servers=self._bootstrap, transactional_id=f"{self._topic}-{name}"
            ) as producer,
        ):
            consumer.subscribe(self._topic)
            process(consumer, producer, once, is_over=lambda: is_over(seen), max_records=9)

    def visit(self) -> None:
        for _ in range(VISITS):
            self.copy("guest", lambda seen: seen > 3)

    def stay(self) -> None:
        self.copy("host", lambda _: self.all_is_fed.is_set() and self.is_copied())

    def is_copied(self) -> bool:
        return sum(map(len, copied(self._bootstrap, self._topic))) >= self._fed

    def feed(self, producer: Producer) -> None:
        for partition in range(PARTITIONS):
            value = b"%d" % self._fed
            producer.send(self._topic, value, partition=partition)
            self.expected[partition].append(value)
            self._fed += 1


@pytest.mark.parametrize(
    "how",
    [
        {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "200"},
        {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "200"},
        {"group.protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "KIP-848"],
)
def test_a_loop_whose_members_come_and_go_is_exact(
    ottla_node: Node, topic: str, how: dict[str, str]
) -> None:
    bootstrap = ottla_node.bootstrap
    create_topic(bootstrap, topic, PARTITIONS)
    create_topic(bootstrap, f"{topic}-copy", PARTITIONS)
    group = ComingAndGoing(bootstrap, topic, how)
    with Producer(bootstrap_servers=bootstrap) as feeder, ThreadPoolExecutor(2) as pool:
        host, guest = pool.submit(group.stay), pool.submit(group.visit)
        while not wait([host, guest], 0.02, FIRST_COMPLETED).done:
            group.feed(feeder)
        feeder.flush(PATIENCE_S)
        group.all_is_fed.set()
        for member in (guest, host):
            member.result(PATIENCE_S)
    assert copied(bootstrap, topic) == group.expected


def test_one_to_many_and_none_and_a_function_that_raises(cluster: str, topic: str) -> None:
    fill(cluster, topic)
    seen: list[int] = []

    def halve(record: Record) -> Any:
        number = int(record.value)
        if number == 150 and number not in seen:
            seen.append(number)
            raise KeyError(number)
        if number % 2:
            return None
        return [Output(f"{topic}-copy", record.value, partition=0)] * 2

    with (
        Consumer(settings_of(cluster, topic)) as consumer,
        Producer(bootstrap_servers=cluster, transactional_id=topic) as producer,
    ):
        consumer.subscribe(topic)
        with pytest.raises(KeyError):
            process(consumer, producer, halve)
        left = RECORDS // 2 * 2
        process(
            consumer,
            producer,
            halve,
            is_over=lambda: len(copied(cluster, topic)[0]) >= left,
        )
        with pytest.raises(TypeError, match="Output"):
            with Producer(bootstrap_servers=cluster) as other:
                other.send(topic, b"1000")
            process(consumer, producer, lambda record: ["text"])  # type: ignore[list-item]
    numbers = [int(value) for value in copied(cluster, topic)[0]]
    assert sorted(numbers) == sorted(list(range(0, RECORDS, 2)) * 2)


def test_a_zombie_ends_with_being_fenced(cluster: str, topic: str) -> None:
    fill(cluster, topic)
    with (
        Consumer(settings_of(cluster, topic)) as consumer,
        Producer(bootstrap_servers=cluster, transactional_id=topic) as zombie,
        Producer(bootstrap_servers=cluster, transactional_id=topic) as heir,
    ):
        consumer.subscribe(topic)
        seen: list[bytes] = []

        def copy(record: Record) -> Output:
            if not seen:  # the first of all, whichever it is: nothing is committed before it
                heir.init_transactions()
            seen.append(record.value)
            return Output(f"{topic}-copy", record.value)

        with pytest.raises(FencedError):
            process(consumer, zombie, copy)
    assert copied(cluster, topic) == [[]] * PARTITIONS


@pytest.mark.parametrize("is_written", [True, False], ids=["it writes more", "it writes no more"])
def test_a_loop_that_ran_out_of_time_goes_on(cluster: str, topic: str, is_written: bool) -> None:
    """The coordinator aborts what takes too long: that is done again, and counts once."""
    expected = fill(cluster, topic)
    partitions = [(topic, partition) for partition in range(PARTITIONS)]
    rounds = count = 0
    with (
        Consumer(settings_of(cluster, topic)) as consumer,
        Producer(
            bootstrap_servers=cluster, transactional_id=topic, transaction_timeout_ms=1_000
        ) as producer,
        Admin(bootstrap_servers=cluster) as admin,
    ):
        consumer.subscribe(topic)

        def is_aborted() -> bool:
            return admin.describe_transactions([topic])[0].state == "CompleteAbort"

        def is_over() -> bool:
            nonlocal rounds
            rounds += bool(count)
            found = consumer.committed(partitions).values()
            return sum(one.offset for one in found if one is not None) == RECORDS

        def copy(record: Record) -> Output | None:
            nonlocal count
            count += 1
            if count == 2:
                wait_until(is_aborted, PATIENCE_S, "the abort of what takes too long")
            if count > 1 and not rounds and not is_written:
                return None
            return Output(f"{topic}-copy", record.value, None, None, record.partition)

        process(consumer, producer, copy, is_over=is_over, max_records=20)
    assert copied(cluster, topic) == expected


def test_asyncio(cluster: str, topic: str) -> None:
    expected = fill(cluster, topic)
    count = 0

    async def copy(record: Record) -> Output:
        nonlocal count
        await asyncio.sleep(0)
        count += 1
        return Output(f"{topic}-copy", record.value, partition=record.partition)

    async def work() -> None:
        async with (
            AsyncConsumer(settings_of(cluster, topic)) as consumer,
            AsyncProducer(bootstrap_servers=cluster, transactional_id=topic) as producer,
        ):
            consumer.subscribe(topic)
            done = await aio_process(consumer, producer, copy, is_over=lambda: count >= RECORDS)
            assert done == RECORDS

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    # Kafka answers before the markers are written.
    wait_until(lambda: copied(cluster, topic) == expected, 60, "all is copied")


class Interrupted:
    """A function that copies, and is interrupted at some of the records, at each of them once."""

    def __init__(self, topic: str, how: type[BaseException]) -> None:
        self._target = f"{topic}-copy"
        self._how = how
        self._met: set[bytes] = set()

    def copy(self, record: Record) -> Output:
        if int(record.value) % 25 == 0 and record.value not in self._met:
            self._met.add(record.value)
            raise self._how
        return Output(self._target, record.value, partition=record.partition)


def test_a_loop_that_is_interrupted_can_be_called_again(cluster: str, topic: str) -> None:
    """With the same clients: what it had read and not written yet is read again."""
    expected = fill(cluster, topic)
    function = Interrupted(topic, KeyboardInterrupt).copy
    with (
        Consumer(settings_of(cluster, topic)) as consumer,
        Producer(bootstrap_servers=cluster, transactional_id=topic) as producer,
    ):
        consumer.subscribe(topic)

        def is_over() -> bool:
            return sum(consumer.caught_up().values()) == RECORDS

        while not is_over():
            with contextlib.suppress(KeyboardInterrupt):
                process(consumer, producer, function, is_over=is_over, max_records=9)
    assert copied(cluster, topic, decided=True) == expected


def test_a_task_that_is_cancelled_can_be_begun_again(cluster: str, topic: str) -> None:
    expected = fill(cluster, topic)
    function = Interrupted(topic, asyncio.CancelledError).copy

    async def work() -> None:
        async with (
            AsyncConsumer(settings_of(cluster, topic)) as consumer,
            AsyncProducer(bootstrap_servers=cluster, transactional_id=topic) as producer,
        ):
            consumer.subscribe(topic)

            def is_over() -> bool:
                return sum(consumer.caught_up().values()) == RECORDS

            while not is_over():
                with contextlib.suppress(asyncio.CancelledError):
                    await aio_process(consumer, producer, function, is_over=is_over, max_records=9)

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    assert copied(cluster, topic, decided=True) == expected


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"enable.auto.commit": True}, r"enable\.auto\.commit"),
        ({"isolation.level": "read_uncommitted"}, r"isolation\.level"),
        ({"group.id": None, "group.instance.id": None}, r"group\.id"),
    ],
)
def test_settings_that_would_not_be_exact_are_refused(wrong: dict[str, Any], reason: str) -> None:
    nobody = "127.0.0.1:1"
    with (
        Consumer({**settings_of(nobody, "t"), **wrong}) as consumer,
        Producer(bootstrap_servers=nobody, transactional_id="t") as producer,
        pytest.raises(ConfigError, match=reason),
    ):
        process(consumer, producer, lambda record: None)
    with (
        Consumer(settings_of(nobody, "t")) as consumer,
        Producer(bootstrap_servers=nobody) as plain,
        pytest.raises(ConfigError, match=r"transactional\.id"),
    ):
        process(consumer, plain, lambda record: None)
