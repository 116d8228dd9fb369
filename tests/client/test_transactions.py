"""Transactions by the plain producer, on Ottla and on Apache Kafka: rows 64 to 66."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import Admin, GroupMetadata, Producer
from ottla.client.consumer_errors import CommitFailedError
from ottla.client.errors import (
    ClientError,
    FencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionStateError,
)
from tests.client.admin_calls import committed_offset, create_topic
from tests.client.reading import values
from tests.compat.nodes import wait_until

PATIENCE_S = 60


def test_all_or_nothing_over_partitions_and_offsets(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 3)
    group = f"group of {topic}"
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        for number in range(4):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(topic, b"%d-%d" % (number, partition), partition=partition)
            producer.send_offsets({(topic, 0): number, (topic, 1): 10 * number}, group)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    expected = [b"%d-%d" % (number, partition) for partition in range(3) for number in (0, 2)]
    assert values(cluster, topic, decided=True) == expected
    assert [committed_offset(cluster, group, topic, partition) for partition in (0, 1)] == [2, 20]


def test_the_block_commits_or_aborts(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        with producer.transaction():
            kept = producer.send(topic, b"kept")
        assert kept.done()
        with pytest.raises(KeyError), producer.transaction():
            producer.send(topic, b"lost").result(PATIENCE_S)
            raise KeyError
        with producer.transaction():
            pass  # an empty one costs nothing
        with producer.transaction():
            producer.send(topic, b"kept too")
    assert values(cluster, topic, decided=True) == [b"kept", b"kept too"]
    assert values(cluster, topic) == [b"kept", b"lost", b"kept too"]


def test_a_close_aborts_what_is_open(cluster: str, topic: str) -> None:
    """Readers of what is committed need not wait for `transaction.timeout.ms`: here it is longer
    than this test waits."""
    with Producer(
        bootstrap_servers=cluster, transactional_id=topic, transaction_timeout_ms=600_000
    ) as producer:
        producer.begin_transaction()
        producer.send(topic, b"lost")
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send(topic, b"plain")
    assert values(cluster, topic, decided=True) == [b"plain"]


def test_what_the_block_raised_is_told_even_if_the_abort_fails(
    cluster: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        abort = producer.abort_transaction
        monkeypatch.setattr(producer, "abort_transaction", lambda: abort(timeout_s=0.0))
        with pytest.raises(KeyError), producer.transaction():
            producer.send(topic, b"lost").result(PATIENCE_S)
            raise KeyError
        with producer.transaction():
            producer.send(topic, b"kept")
    assert values(cluster, topic, decided=True) == [b"kept"]


def test_a_zombie_is_fenced(cluster: str, topic: str) -> None:
    with (
        Producer(bootstrap_servers=cluster, transactional_id=topic) as zombie,
        Producer(bootstrap_servers=cluster, transactional_id=topic) as heir,
    ):
        zombie.begin_transaction()
        zombie.send(topic, b"zombie's").result(PATIENCE_S)
        heir.init_transactions()
        with heir.transaction():
            heir.send(topic, b"heir's")
        late = zombie.send(topic, b"late")
        # So far it might have run out of time only, which an abort would cure.
        with pytest.raises(TransactionAbortableError):
            zombie.commit_transaction()
        assert isinstance(late.exception(PATIENCE_S), TransactionAbortableError)
        with pytest.raises(FencedError):
            zombie.abort_transaction()
        for call in (zombie.begin_transaction, lambda: zombie.send(topic, b"dead")):
            with pytest.raises(FencedError):
                call()
    assert values(cluster, topic, decided=True) == [b"heir's"]


def test_a_failed_record_spoils_the_transaction_and_an_abort_cures_it(
    cluster: str, topic: str
) -> None:
    create_topic(cluster, topic, 1, {"max.message.bytes": "2000"})
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"lost").result(PATIENCE_S)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, bytes(4_000)).result(PATIENCE_S)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, b"not any more")
        with pytest.raises(RecordTooLargeError):
            producer.commit_transaction()
        producer.abort_transaction()
        for number in range(3):
            with producer.transaction():
                producer.send(topic, b"%d" % number)
        with pytest.raises(RecordTooLargeError), producer.transaction():
            producer.send(topic, bytes(4_000))
    assert values(cluster, topic, decided=True) == [b"0", b"1", b"2"]


def test_offsets_that_cannot_be_meant_cost_nothing(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 1)
    group = f"group of {topic}"
    settings = {"bootstrap.servers": cluster, "transactional.id": topic}
    with Producer(settings) as producer, producer.transaction():
        with pytest.raises(ValueError, match="below 0"):
            producer.send_offsets({(topic, 0): -1}, group)
        wrong: Any
        for wrong in ([(topic, 0)], {topic: 1}, {(topic, 0): "1"}, {(topic, 0): None}):
            with pytest.raises(TypeError, match="offsets are"):
                producer.send_offsets(wrong, group)
        producer.send_offsets({(topic, 0): 7}, group)
    assert committed_offset(cluster, group, topic, 0) == 7


@pytest.mark.parametrize("step", ["send", "offsets", "commit", "abort"])
def test_who_ran_out_of_time_aborts_and_goes_on(cluster: str, topic: str, step: str) -> None:
    """The coordinator took its epoch from it, as it does from who is fenced: an abort tells the one
    from the other."""
    settings = {"bootstrap.servers": cluster, "transactional.id": topic}
    with (
        Producer(settings, transaction_timeout_ms=500) as producer,
        Admin(bootstrap_servers=cluster) as admin,
    ):
        producer.begin_transaction()
        producer.send(topic, b"late").result(PATIENCE_S)
        wait_until(lambda: is_aborted(admin, topic), PATIENCE_S, "the abort of what took too long")
        if step == "send":
            with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
                producer.send(topic, b"later").result(PATIENCE_S)
        elif step == "offsets":
            with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
                producer.send_offsets({(topic, 0): 1}, f"group of {topic}")
        if step != "abort":
            with pytest.raises(TransactionAbortableError):
                producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"again")
    assert values(cluster, topic, decided=True) == [b"again"]


def is_aborted(admin: Admin, transactional_id: str) -> bool:
    return admin.describe_transactions([transactional_id])[0].state == "CompleteAbort"


@pytest.mark.parametrize("step", ["send", "offsets", "commit"])
def test_the_block_of_a_zombie_raises_that_it_is_fenced(
    cluster: str, topic: str, step: str
) -> None:
    settings = {"bootstrap.servers": cluster, "transactional.id": topic}
    with Producer(settings) as zombie, Producer(settings) as heir:
        with pytest.raises(FencedError), zombie.transaction():
            zombie.send(topic, b"zombie's").result(PATIENCE_S)
            heir.init_transactions()
            if step == "send":
                zombie.send(topic, b"late").result(PATIENCE_S)
            elif step == "offsets":
                zombie.send_offsets({(topic, 0): 1}, f"group of {topic}")
        with pytest.raises(FencedError):
            zombie.begin_transaction()
        with heir.transaction():
            heir.send(topic, b"heir's")
    assert values(cluster, topic, decided=True) == [b"heir's"]


def test_a_stranger_to_the_group_cannot_commit_its_offsets(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 1)
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        producer.begin_transaction()
        stranger = GroupMetadata(f"group of {topic}", 5, "nobody")
        with pytest.raises(CommitFailedError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
            producer.send_offsets({(topic, 0): 1}, stranger)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"again")
    assert values(cluster, topic, decided=True) == [b"again"]


def test_calls_out_of_turn_are_refused(cluster: str, topic: str) -> None:
    with (
        Producer(bootstrap_servers=cluster) as plain,
        pytest.raises(TransactionStateError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        with pytest.raises(TransactionStateError, match="needs a transaction"):
            producer.send(topic, b"outside")
        producer.init_transactions()
        calls: list[Callable[[], None]] = [
            producer.init_transactions,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets({(topic, 0): 1}, "g"),
            lambda: producer.complete_transaction(commit=True),
        ]
        for call in calls:
            with pytest.raises(TransactionStateError):
                call()
        producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()


def test_a_transactional_id_that_the_broker_refuses(cluster: str, topic: str) -> None:
    settings = {"transactional.id": topic, "transaction.timeout.ms": 10**9}
    with (
        Producer(settings, bootstrap_servers=cluster) as producer,
        pytest.raises(ClientError, match="INVALID_TRANSACTION_TIMEOUT"),
    ):
        producer.begin_transaction()


def test_an_end_in_the_middle_of_a_transaction_is_told_to_every_record(
    cluster: str, topic: str
) -> None:
    """The first that fails spoils the transaction, and with it the others: each is told once."""
    create_topic(cluster, topic, 3)
    producer = Producer(bootstrap_servers=cluster, transactional_id=topic, linger_ms=60_000)
    producer.begin_transaction()
    sent = [producer.send(topic, b"unsent", partition=partition) for partition in range(3)]
    producer._shell.close()
    assert all(isinstance(one.exception(PATIENCE_S), ClientError) for one in sent)
