"""Goal: stock transactional clients, and rows 64 to 69 of the feature list as far as one node goes.
Method: confluent-kafka, kafka-python, aiokafka, kcat and Kafka's own Java tools against a broker
process; what read_committed and read_uncommitted see; crash states made from the files of a killed
broker. OTTLA_COMPAT_NODE=kafka runs most of it against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaProducer

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.internal_topics import everything_about
from tests.compat.java_host import JavaHost
from tests.compat.nodes import OttlaNode, wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.compat.wire import Wire, batch_of, batches_in, fetch_request, produce, stored_bytes
from tests.patience import SECONDS_MAX, SHORT_SESSION_MS

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def begin(bootstrap: str, name: str | None = None, timeout_ms: int = 600_000) -> Producer:
    """A transactional producer, ready for its first transaction."""
    settings = {
        "transactional.id": name or confluent.new_name("txn"),
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,
        "linger.ms": 0,
    }
    producer = confluent.producer(bootstrap, settings)
    producer.init_transactions(SECONDS_MAX)
    return producer


def write(producer: Producer, topic: str, values: Iterable[str], partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(SECONDS_MAX)


def seen(bootstrap: str, topic: str, isolation: str, partitions: Iterable[int] = (0,)) -> list[str]:
    """All values up to the end that this isolation level sees."""
    messages = confluent.read(
        bootstrap, topic, partitions=partitions, settings={"isolation.level": isolation}
    )
    return [text_of(message) for message in messages]


def committed(
    bootstrap: str, topic: str, count: int, partitions: Iterable[int] = (0,)
) -> list[str]:
    """As `seen`, once `count` values are: a commit is answered before its markers are written."""
    parts = list(partitions)
    values: list[str] = []

    def is_there() -> bool:
        values[:] = seen(bootstrap, topic, COMMITTED, parts)
        return len(values) >= count

    wait_until(is_there, SECONDS_MAX, f"{count} committed records of {topic}")
    return values


def wait_for_completion(bootstrap: str, name: str) -> None:
    """Until every marker of the last commit under this transactional id is written."""

    def is_complete() -> bool:
        with TransactionWire(bootstrap, name) as wire:
            told = wire.list(transactional_id_pattern=name).transaction_states
        return [one.transaction_state for one in told] == ["CompleteCommit"]

    wait_until(is_complete, SECONDS_MAX, f"the commit of {name} is finished")


def text_of(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


def markers(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    """Offsets of the markers of a partition."""
    with Wire(bootstrap) as wire:
        ends = confluent.consumer(bootstrap)
        _, end = ends.get_watermark_offsets(TopicPartition(topic, partition), SECONDS_MAX)
        ends.close()
        data = stored_bytes(wire, topic, end, partition=partition)
    return [batch.base_offset for batch in batches_in(data) if batch.is_control]


# -- clients ----------------------------------------------------------------------------------


def test_confluent(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, partitions=3)
    producer = begin(bootstrap)
    for number in range(4):
        producer.begin_transaction()
        for part in range(3):
            write(producer, topic, [f"{number}-{part}"], part)
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    wanted = {f"{number}-{part}" for number in (0, 2) for part in range(3)}
    assert set(seen(bootstrap, topic, COMMITTED, range(3))) == wanted
    assert len(seen(bootstrap, topic, UNCOMMITTED, range(3))) == 12


def test_kafka_python(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=confluent.new_name("txn"), linger_ms=0
    )
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, str(number).encode(), partition=0).get(SECONDS_MAX)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()
    assert seen(bootstrap, topic, COMMITTED) == ["0", "2"]


def test_aiokafka(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)

    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=confluent.new_name("txn")
        )
        await producer.start()
        try:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, str(number).encode(), partition=0)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(scenario())
    assert seen(bootstrap, topic, COMMITTED) == ["0", "2"]


def test_kcat_reads_what_is_committed(bootstrap: str) -> None:
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    assert kcat is not None, "kcat is not installed"
    topic = confluent.create_topic(bootstrap)
    producer = begin(bootstrap)
    for number in range(4):
        producer.begin_transaction()
        write(producer, topic, [str(number)])
        if number % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    kcat_options = [kcat, "-C", "-b", bootstrap, "-t", topic, "-e", "-q"]
    for isolation, values in ((COMMITTED, "0 2"), (UNCOMMITTED, "0 1 2 3")):
        told = subprocess.run(
            [*kcat_options, "-X", f"isolation.level={isolation}"],
            capture_output=True,
            check=True,
            timeout=SECONDS_MAX,
        )
        assert told.stdout.decode().split() == values.split()


def test_transactional_message_copier(bootstrap: str, java: JavaHost) -> None:
    """Kafka's own copier, a Java client with an epoch per transaction, with random aborts."""
    source = confluent.create_topic(bootstrap, partitions=2)
    target = confluent.create_topic(bootstrap, partitions=2)
    values = [str(number) for number in range(400)]
    sender = confluent.producer(bootstrap)
    for part in (0, 1):
        records = ({"value": value, "partition": part} for value in values[part::2])
        confluent.send(sender, source, records)
    for part in (0, 1):
        run = java.tool(
            "TransactionalMessageCopier",
            *("--broker-list", bootstrap, "--input-topic", source, "--output-topic", target),
            *("--input-partition", str(part), "--transactional-id", confluent.new_name("copier")),
            *("--consumer-group", confluent.new_name("copier"), "--transaction-size", "20"),
            *("--max-messages", "200", "--enable-random-aborts"),
        )
        assert "ShutdownComplete" in run.output, run
    assert sorted(committed(bootstrap, target, 400, (0, 1)), key=int) == values


def with_an_open_transaction(bootstrap: str) -> tuple[str, str, Producer]:
    """A topic, the transactional id and the producer that has written to it."""
    topic, name = confluent.create_topic(bootstrap), confluent.new_name("txn")
    producer = begin(bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, ["given up"])
    return topic, name, producer


def transactions_tool(java: JavaHost, bootstrap: str, *arguments: str) -> list[str]:
    """The lines that `kafka-transactions` prints."""
    run = java.tool("TransactionsCommand", "--bootstrap-server", bootstrap, *arguments)
    assert run.status == 0, run
    return run.output.splitlines()


def test_kafka_transactions_tool(bootstrap: str, java: JavaHost) -> None:
    topic, name, _producer = with_an_open_transaction(bootstrap)
    tool = partial(transactions_tool, java, bootstrap)
    assert any(name in line and "Ongoing" in line for line in tool("list"))
    assert f"{topic}-0" in "\n".join(tool("describe", "--transactional-id", name))
    assert len(tool("describe-producers", "--topic", topic, "--partition", "0")) == 2
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    # Nobody reads it, and nobody waits for it any longer.
    confluent.send_values(bootstrap, topic, [b"plain"])
    assert seen(bootstrap, topic, COMMITTED) == ["plain"]


def test_kafka_transactions_ends_what_is_open_by_its_id(bootstrap: str, java: JavaHost) -> None:
    topic, name, producer = with_an_open_transaction(bootstrap)
    tool = partial(transactions_tool, java, bootstrap)

    def state() -> str:
        (row,) = tool("list", "--transactional-id-pattern", f"{name[:-1]}.")[1:]
        return row.split()[-1]

    assert state() == "Ongoing"
    tool("forceTerminateTransaction", "--transactionalId", name)
    assert state() == "Empty"
    confluent.send_values(bootstrap, topic, [b"plain"])
    assert seen(bootstrap, topic, COMMITTED) == ["plain"]
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].fatal()


def test_kafka_transactions_finds_what_hangs(make_node: MakeNode, java: JavaHost) -> None:
    """Only a broker that does not verify lets it in; what is open and known is not among it."""
    bootstrap = make_node({"transaction.partition.verification.enable": "false"}).bootstrap
    topic, other = (confluent.create_topic(bootstrap) for _ in range(2))
    living = begin(bootstrap)
    living.begin_transaction()
    write(living, other, ["open"])
    with TransactionWire(bootstrap).ready() as wire:
        assert wire.write(topic, 0, version=11) == 0
        hanging = wire.producer_id

    def tool(*arguments: str) -> list[str]:
        run = java.tool("TransactionsCommand", "--bootstrap-server", bootstrap, *arguments)
        assert run.status == 0, run
        return run.output.splitlines()

    def found(*where: str) -> list[list[str]]:
        """Without the head line. Younger than a millisecond, nothing hangs."""
        quiet = ("--max-transaction-timeout", "0")
        return [row.split() for row in tool("find-hanging", *where, *quiet)[1:]]

    wait_until(lambda: found("--topic", topic), SECONDS_MAX, "it is found")
    (row,) = found("--topic", topic)
    assert row[:3] == [topic, "0", str(hanging)]
    assert found("--topic", other) == []
    assert tool("find-hanging", "--topic", topic)[1:] == []  # too young for fifteen minutes
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert found("--topic", topic) == []
    living.commit_transaction(SECONDS_MAX)
    assert committed(bootstrap, other, 1) == ["open"]
    assert seen(bootstrap, topic, COMMITTED) == []


def test_the_log_of_transactions_reads_as_kafkas(bootstrap: str, java: JavaHost) -> None:
    topic = confluent.create_topic(bootstrap)
    name = confluent.new_name("txn")
    producer = begin(bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, ["x"])
    producer.commit_transaction(SECONDS_MAX)
    wait_for_completion(bootstrap, name)

    def states() -> list[int]:
        run = java.tool(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap),
            *everything_about(bootstrap, name, "__transaction_state"),
            *("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
        )
        decoder, found, position = json.JSONDecoder(), [], 0
        while position < len(run.output):
            record, position = decoder.raw_decode(run.output, position)
            if record["key"]["data"]["transactionalId"] == name:
                found.append(record["value"]["data"]["transactionStatus"])
        return found

    # Empty, Ongoing, PrepareCommit, CompleteCommit.
    assert states() == [0, 1, 2, 4]


# -- rows -------------------------------------------------------------------------------------


def test_row_64_a_batch_sent_again_is_stored_once(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    with TransactionWire(bootstrap) as wire:
        wire.ready()
        batch = batch_of([b"once"], producer=(wire.producer_id, wire.epoch, 0))
        first, again = (produce(wire, topic, batch) for _ in range(2))
    assert (int(first.error_code), int(again.error_code)) == (0, 0)
    assert first.base_offset == again.base_offset == 0
    assert seen(bootstrap, topic, UNCOMMITTED) == ["once"]


def test_row_65_consume_transform_produce(bootstrap: str) -> None:
    """All of it without a failure; tests/chaos/test_kill_transactions.py has the failures."""
    source, target = (confluent.create_topic(bootstrap) for _ in range(2))
    confluent.send_values(bootstrap, source, [str(number).encode() for number in range(50)])
    group = confluent.new_name("group")
    settings = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": COMMITTED}
    consumer = confluent.consumer(bootstrap, {**settings, "enable.partition.eof": False})
    consumer.subscribe([source])
    producer = begin(bootstrap)
    copied = 0
    while copied < 50:
        messages = [one for one in consumer.consume(7, 1.0) if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        write(producer, target, [text_of(one) for one in messages])
        positions = consumer.position(consumer.assignment())
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(positions, metadata, SECONDS_MAX)
        if copied == 14:
            producer.abort_transaction(SECONDS_MAX)
            assert offset_of(consumer, source) == 14
            consumer.seek(TopicPartition(source, 0, 14))
            copied = 15  # so that it happens once; the rest is counted from what is read back
            continue
        producer.commit_transaction(SECONDS_MAX)
        copied = offset_of(consumer, source)
    consumer.close()
    assert committed(bootstrap, target, 50) == [str(number) for number in range(50)]


def offset_of(consumer: Consumer, topic: str) -> int:
    (committed,) = consumer.committed([TopicPartition(topic, 0)], SECONDS_MAX)
    return int(committed.offset)


def test_row_66_a_transactional_id_fences_its_older_producer(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    name = confluent.new_name("txn")
    older = begin(bootstrap, name)
    older.begin_transaction()
    write(older, topic, ["zombie"])
    newer = begin(bootstrap, name)
    newer.begin_transaction()
    write(newer, topic, ["living"])
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].fatal()
    newer.commit_transaction(SECONDS_MAX)
    assert committed(bootstrap, topic, 1) == ["living"]


def test_row_67_a_restart_finishes_what_was_decided(make_node: MakeNode) -> None:
    """The state of a broker that died between the decision and its last marker."""
    node = make_node(kind=OttlaNode)
    topic = confluent.create_topic(node.bootstrap, partitions=3)
    producer = begin(node.bootstrap, "x")
    producer.begin_transaction()
    for part in range(3):
        write(producer, topic, [f"value {part}"], part)
    producer.commit_transaction(SECONDS_MAX)
    wait_for_completion(node.bootstrap, "x")  # so that it is the completion that is cut off
    node.kill()
    (state_log,) = (one for one in node.data.glob("__transaction_state-*/*.log") if size(one))
    # The completion and two of three markers never were.
    for log in (state_log, *(log_of(node.partition_directory(topic, part)) for part in (1, 2))):
        cut_last_batch(log)
    node.start()
    wait_for_completion(node.bootstrap, "x")
    for part in range(3):
        assert markers(node.bootstrap, topic, part) == [1]
    assert sorted(seen(node.bootstrap, topic, COMMITTED, range(3))) == [
        f"value {part}" for part in range(3)
    ]


def test_row_67_without_a_decision_a_restart_ends_nothing(make_node: MakeNode) -> None:
    """The state of a broker that died before the decision was kept."""
    node = make_node(
        {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}, kind=OttlaNode
    )
    topic = confluent.create_topic(node.bootstrap)
    producer = begin(node.bootstrap, "x", timeout_ms=SHORT_SESSION_MS)
    producer.begin_transaction()
    write(producer, topic, ["never"])
    node.kill()
    node.start()
    assert seen(node.bootstrap, topic, COMMITTED) == []
    # Time goes on for it, and then it is aborted.
    with Wire(node.bootstrap) as wire:
        produce(wire, topic, batch_of([b"plain"]))
    wait_until(
        lambda: seen(node.bootstrap, topic, COMMITTED) == ["plain"], SECONDS_MAX, "the abort"
    )
    assert len(markers(node.bootstrap, topic)) == 1


def test_row_68_all_or_none_over_three_partitions(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap, partitions=3)
    producer = begin(bootstrap)
    producer.begin_transaction()
    for part in range(3):
        write(producer, topic, [str(part)], part)
    assert seen(bootstrap, topic, COMMITTED, range(3)) == []
    assert sorted(seen(bootstrap, topic, UNCOMMITTED, range(3))) == ["0", "1", "2"]
    producer.commit_transaction(SECONDS_MAX)
    assert sorted(committed(bootstrap, topic, 3, range(3))) == ["0", "1", "2"]
    for part in range(3):
        assert markers(bootstrap, topic, part) == [1]


def test_row_69_an_open_transaction_hides_what_is_behind_it(bootstrap: str) -> None:
    topic = confluent.create_topic(bootstrap)
    producer = begin(bootstrap)
    producer.begin_transaction()
    write(producer, topic, ["open"])
    confluent.send_values(bootstrap, topic, [b"plain"])
    assert seen(bootstrap, topic, COMMITTED) == []
    assert seen(bootstrap, topic, UNCOMMITTED) == ["open", "plain"]
    producer.abort_transaction(SECONDS_MAX)
    wait_until(
        lambda: seen(bootstrap, topic, COMMITTED) == ["plain"], SECONDS_MAX, "the abort is seen"
    )


def test_row_69_until_it_runs_out_of_time(make_node: MakeNode) -> None:
    node = make_node({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    topic = confluent.create_topic(node.bootstrap)
    producer = begin(node.bootstrap, timeout_ms=SHORT_SESSION_MS)
    producer.begin_transaction()
    write(producer, topic, ["late"])
    confluent.send_values(node.bootstrap, topic, [b"plain"])
    wait_until(
        lambda: seen(node.bootstrap, topic, COMMITTED) == ["plain"], SECONDS_MAX, "the abort"
    )
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(SECONDS_MAX)
    assert not refused.value.args[0].retriable()


def test_a_long_poll_is_not_woken_by_what_it_may_not_see(bootstrap: str) -> None:
    """Its first answer has the records: an answer for the open transaction would be empty."""
    topic = confluent.create_topic(bootstrap)
    producer = begin(bootstrap)
    with Wire(bootstrap) as reader:
        # It may wait longer than the connection's own time-out: only the commit can end it.
        asked = replace(fetch_request(topic, 0, wait_ms=120_000), isolation_level=1)
        sent = reader.send(asked)
        producer.begin_transaction()
        write(producer, topic, ["a", "b"])
        producer.commit_transaction(SECONDS_MAX)
        (told,) = reader.receive(asked, sent).responses[0].partitions
    assert told.last_stable_offset > 0
    assert sum(batch.record_count for batch in batches_in(bytes(told.records or b""))) >= 2


# -- files ------------------------------------------------------------------------------------


def size(path: Path) -> int:
    return path.stat().st_size


def log_of(directory: Path) -> Path:
    (path,) = directory.glob("*.log")
    return path


def cut_last_batch(log: Path) -> None:
    data = log.read_bytes()
    last = batches_in(data)[-1]
    with log.open("r+b") as file:
        file.truncate(last.position)
