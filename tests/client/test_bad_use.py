"""Goal: what a program does wrong is told by name, at once, and costs nobody else anything: the
client goes on, nobody waits for ever, no thread is left. On Ottla and on Kafka.
"""

from __future__ import annotations

import asyncio
import datetime
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from ottla.client import Admin, Consumer, NewTopic, Producer
from ottla.client.aio import AsyncConsumer, AsyncProducer
from ottla.client.consumer_errors import DeserializationError
from ottla.client.errors import BrokerError, ClientError, ClosedError, UnknownTopicError
from ottla.testing import Cluster
from tests.client.reading import stored

PATIENCE_S = 60
NOBODY = "127.0.0.1:1"


def make_topic(cluster: str, topic: str, partitions: int = 1) -> None:
    with Admin(bootstrap_servers=cluster) as admin:
        admin.create_topics([NewTopic(topic, partitions)])


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": None}, TypeError, "a topic has a name"),
    ({"topic": ""}, BrokerError, "1 to 249 letters"),
    ({"topic": "a\ud800"}, BrokerError, "1 to 249 letters"),
    ({"topic": "a" * 40_000}, BrokerError, "1 to 249 letters"),
    ({"topic": "two words"}, BrokerError, "INVALID_TOPIC"),
    ({"value": "text"}, TypeError, "a value is bytes or None, not str"),
    ({"key": 5}, TypeError, "a key is bytes or None, not int"),
    ({"partition": "0"}, TypeError, "a partition is a whole number"),
    ({"partition": -1}, UnknownTopicError, "not -1"),
    ({"partition": 77}, UnknownTopicError, "not 77"),
    ({"timestamp_ms": 1.5}, TypeError, "a timestamp is a whole number"),
    ({"timestamp_ms": -1}, ValueError, "milliseconds since 1970"),
    ({"timestamp_ms": 1 << 63}, ValueError, "milliseconds since 1970"),
    ({"timestamp_ms": datetime.date(2026, 1, 1)}, TypeError, "a timestamp is a whole number"),
    ({"headers": [("a", "text")]}, TypeError, "a header is bytes or None, not str"),
    ({"headers": [(b"a", b"1")]}, TypeError, "a header is a name"),
    ({"headers": ["ab", "c"]}, TypeError, "a header is"),
    ({"headers": [None]}, TypeError, "a header is a name"),
]


def test_a_record_that_cannot_be_is_refused_and_the_next_one_goes(
    cluster: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(cluster, topic)
    with Producer(bootstrap_servers=cluster, linger_ms=0) as producer:
        for number, (given, kind, reason) in enumerate(WRONG):
            with pytest.raises(kind, match=reason):
                producer.send(**{"topic": topic, "value": b"x", **given})
            assert producer.send(topic, b"%d" % number).result(PATIENCE_S).offset == number
        with pytest.raises(TypeError, match="a topic has a name"):
            producer.partitions_for(5)  # type: ignore[arg-type]
        assert "background" not in caplog.text, "who calls is told; nobody else need be"
        headers = {"a": b"1", "none": None, "view": memoryview(b"2")}
        producer.send(topic, b"last", headers=headers).result(PATIENCE_S)  # type: ignore[arg-type]
        producer.send(topic, b"more", headers=iter([("b", b"3")])).result(  # type: ignore[arg-type]
            PATIENCE_S
        )
    *_, last, more = stored(cluster, topic)
    assert last.headers == (("a", b"1"), ("none", None), ("view", b"2"))
    assert more.headers == (("b", b"3"),)


def test_a_callback_that_fails_does_not_cost_the_others_theirs(cluster: str, topic: str) -> None:
    told: list[int] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        told.append(metadata.offset)
        if metadata.offset % 2 == 0:
            raise ValueError("the application's own")

    with Producer(bootstrap_servers=cluster, linger_ms=50) as producer:
        for _ in range(10):
            producer.send(topic, b"x", on_delivery=on_delivery)
    assert told == list(range(10))


def test_a_callback_that_would_wait_for_itself_is_told(cluster: str, topic: str) -> None:
    told: list[str] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        for wait in (producer.flush, producer.send(topic, b"y").result):
            try:
                wait()
            except ClientError as refusal:
                told.append(str(refusal))
        is_over.set()

    is_over = threading.Event()
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send(topic, b"x", on_delivery=on_delivery)
        assert is_over.wait(PATIENCE_S)
    assert len(told) == 2 and all("must not wait" in one for one in told)


def test_a_callback_may_close_its_producer_and_nobody_waits_for_ever(
    cluster: str, topic: str
) -> None:
    make_topic(cluster, topic)
    producer = Producer(bootstrap_servers=cluster, linger_ms=0)
    closed = threading.Event()

    def close(*_: Any) -> None:
        producer.close()
        closed.set()

    producer.send(topic, b"first", on_delivery=close)
    assert closed.wait(PATIENCE_S)
    with pytest.raises(ClosedError):
        producer.send(topic, b"later")
    producer._shell._thread.join(PATIENCE_S)
    assert not producer._shell._thread.is_alive()


def test_what_is_under_way_when_a_callback_closes_is_told(cluster: str, topic: str) -> None:
    make_topic(cluster, topic, 2)
    producer = Producer(bootstrap_servers=cluster, linger_ms=600_000, delivery_timeout_ms=700_000)
    told: list[Any] = []
    waiting = producer.send(topic, b"waits", partition=1, on_delivery=lambda *it: told.append(it))
    producer.send(topic, b"x" * 17_000, partition=0, on_delivery=lambda *_: producer.close())
    with pytest.raises(ClosedError, match="before this record was acknowledged"):
        waiting.result(PATIENCE_S)
    producer._shell._thread.join(PATIENCE_S)
    assert [type(error) for _, error in told] == [ClosedError]


def test_a_client_whose_thread_dies_says_so(
    cluster: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of the client itself: planted, for there should be none."""
    producer = Producer(bootstrap_servers=cluster, linger_ms=600_000, delivery_timeout_ms=700_000)
    producer.send(topic, b"x" * 17_000).result(PATIENCE_S)
    waiting = producer.send(topic, b"waits")

    def defect(now_ms: float) -> None:
        raise ZeroDivisionError("planted")

    with producer._shell.lock:
        producer._machine.core.on_time = defect  # type: ignore[method-assign]
        producer._machine.core.timers.call_at(0, lambda: None)
        producer._shell.wake()
    producer._shell._thread.join(PATIENCE_S)
    assert "planted" in caplog.text
    with pytest.raises(ClosedError):
        waiting.result(PATIENCE_S)
    with pytest.raises(ClosedError):
        producer.send(topic, b"more")
    producer.close()


def test_a_forked_child_is_told_to_make_its_own(cluster: str, topic: str) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        said = []
        for call in (
            lambda: producer.send(topic, b"of the child").result(5),
            lambda: producer.flush(5),
            lambda: consumer.poll(5),
            consumer.commit,
            producer.metrics,
        ):
            try:
                call()
            except ClosedError as error:
                said.append("forked" in str(error))
        producer.close()
        consumer.close()
        with Producer(bootstrap_servers=cluster) as own:
            own.send(topic, b"by its own").result(PATIENCE_S)
        answers.put(said)

    with (
        Producer(bootstrap_servers=cluster) as producer,
        Consumer(bootstrap_servers=cluster, group_id=topic) as consumer,
    ):
        producer.send(topic, b"before").result(PATIENCE_S)
        process = context.Process(target=child)
        process.start()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        assert answers.get() == [True] * 5
        producer.send(topic, b"after").result(PATIENCE_S)
    assert [one.value for one in stored(cluster, topic)] == [b"before", b"by its own", b"after"]


class Interrupting:
    """A socket at which Ctrl-C comes once, just after it has done what it was asked for."""

    def __init__(self, sock: Any, method: str) -> None:
        self._sock = sock
        self._method = method
        self.has_come = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._sock, name)
        if name != self._method or self.has_come:
            return found

        def interrupted(*arguments: Any) -> Any:
            done = found(*arguments)
            if threading.current_thread() is not threading.main_thread():
                return done
            self.has_come = True
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize("method", ["recv_into", "send"])
def test_ctrl_c_costs_a_connection_and_no_record(cluster: str, topic: str, method: str) -> None:
    make_topic(cluster, topic)
    sent: list[bytes] = []
    with Producer(bootstrap_servers=cluster, linger_ms=0) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        with producer._shell.lock:
            links = [one.transport for one in producer._machine.core.nodes.connections.values()]
            for link in links:
                link.sock = Interrupting(link.sock, method)
        deadline = time.monotonic() + PATIENCE_S
        while not any(link.sock.has_come for link in links):
            assert time.monotonic() < deadline
            sent.append(b"%d" % len(sent))
            with suppress(KeyboardInterrupt):
                producer.send(topic, sent[-1]).result(PATIENCE_S)
        for link in links:
            link.sock.has_come = True  # once in all: another connection may be read from meanwhile
        producer.send(topic, b"last").result(PATIENCE_S)
    assert [one.value for one in stored(cluster, topic)] == [b"first", *sent, b"last"]


def test_a_poison_pill_is_named_and_can_be_passed(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster) as producer:
        for value in (b"1", b"two", b"3"):
            producer.send(topic, value)
    settings = {"bootstrap.servers": cluster, "auto.offset.reset": "earliest"}
    got: list[int] = []
    with Consumer(settings, value_deserializer=int) as consumer:
        consumer.assign([(topic, 0)])
        while len(got) < 2:
            try:
                got += [record.value for record in consumer.poll(PATIENCE_S)]
            except DeserializationError as error:
                assert got == [1]
                consumer.seek(error.partition, error.offset + 1)
    assert got == [1, 3]


def test_a_second_thread_that_polls_is_told(cluster: str, topic: str) -> None:
    make_topic(cluster, topic)
    said: list[Exception] = []
    with Consumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])

        def poll_too() -> None:
            while not said:
                try:
                    consumer.poll(0)
                except ClientError as error:
                    said.append(error)

        other = threading.Thread(target=poll_too)
        other.start()
        deadline = time.monotonic() + PATIENCE_S
        while not said and time.monotonic() < deadline:
            with suppress(ClientError):
                consumer.poll(0.2)
        other.join(PATIENCE_S)
        with Producer(bootstrap_servers=cluster) as producer:
            producer.send(topic, b"x")
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [b"x"]
    assert "another thread" in str(said[0])


def test_a_second_task_that_polls_is_told(cluster: str, topic: str) -> None:
    make_topic(cluster, topic)

    async def run() -> None:
        async with AsyncConsumer(
            bootstrap_servers=cluster, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([(topic, 0)])
            first = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0)  # it is inside of poll, where there is nothing yet
            with pytest.raises(ClientError, match="another task"):
                await consumer.poll(0)
            with pytest.raises(ClientError, match="another task"):
                await consumer.fetch_table(timeout_s=0)
            async with AsyncProducer(bootstrap_servers=cluster) as producer:
                await (await producer.send(topic, b"x"))
            assert [record.value for record in await first] == [b"x"]
            assert await consumer.poll(0) == []

    asyncio.run(run())


# -- brokers that say nothing ----------------------------------------------------------------------


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_waited_for(producer: Producer) -> bool:
    """Whether a caller's thread sits in a socket of this producer."""
    connections = list(producer._machine.core.nodes.connections.values())
    return any(one.transport is not None and one.transport.is_driven for one in connections)


def test_who_waits_for_a_silent_broker_hears_of_the_close(topic: str) -> None:
    with Cluster(1) as brokers:
        producer = Producer(bootstrap_servers=brokers.bootstrap, linger_ms=0)
        producer.send(topic, b"1").result(PATIENCE_S)
        brokers.pause(1)
        late = producer.send(topic, b"2")

        def close() -> None:
            wait_until(lambda: is_waited_for(producer))
            producer.close(0)

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(ClosedError):
            late.result()
        closer.join(PATIENCE_S)
        brokers.resume(1)


def test_a_silent_broker_is_asked_again_and_keeps_the_record_once(topic: str) -> None:
    with Cluster(1) as brokers:
        settings = {"bootstrap.servers": brokers.bootstrap, "request.timeout.ms": 1_500}
        with Producer(settings, linger_ms=0) as producer:
            producer.send(topic, b"1").result(PATIENCE_S)
            brokers.pause(1)
            late = producer.send(topic, b"2")
            before = producer.metrics()["connection-creation-total"]

            def resume() -> None:
                wait_until(lambda: producer.metrics()["connection-creation-total"] > before)
                brokers.resume(1)

            resumer = threading.Thread(target=resume)
            resumer.start()
            assert late.result().offset == 1
            resumer.join(PATIENCE_S)
        assert [record[4] for record in stored(brokers.bootstrap, topic)] == [b"1", b"2"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_poll_ends_when_another_thread_closes_its_consumer(protocol: str) -> None:
    """Though nothing ever comes, not even an answer of the broker."""
    consumer = Consumer(bootstrap_servers=NOBODY, group_id="g", group_protocol=protocol)
    consumer.subscribe("t")
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(consumer.poll, PATIENCE_S * 10)
        wait_until(lambda: consumer._machine._waiting is not None)
        consumer.close()
        with pytest.raises(ClosedError):
            polling.result(PATIENCE_S)


def test_a_poll_ends_when_another_task_closes_its_consumer() -> None:
    async def work() -> None:
        consumer = AsyncConsumer(bootstrap_servers=NOBODY, group_id="g")
        consumer.subscribe("t")
        polling = asyncio.ensure_future(consumer.poll(PATIENCE_S * 10))
        while consumer._machine._waiting is None:
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClosedError):
            await polling

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


class ClosedInPoll(Consumer):
    """Another thread closes it when a poll has its records, and has not returned yet."""

    def _take_records(self, count_max: int) -> Any:
        taken = super()._take_records(count_max)
        if taken:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.close).result(PATIENCE_S)
        return taken


def test_records_that_a_close_has_committed_are_handed_out(cluster: str, topic: str) -> None:
    """Nobody else will get them."""
    make_topic(cluster, topic)
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send(topic, b"v")
    settings = {"bootstrap.servers": cluster, "group.id": topic, "auto.offset.reset": "earliest"}
    with ClosedInPoll(settings) as consumer:
        consumer.subscribe(topic)
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [b"v"]
        with pytest.raises(ClosedError):
            consumer.poll(0)
    with Admin(bootstrap_servers=cluster) as admin:
        assert admin.list_group_offsets(topic, [(topic, 0)])[topic, 0].offset == 1
