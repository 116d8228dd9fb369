"""Goal: what each step of a transaction is told, right or wrong, in the versions that differ.
Method: raw requests. OTTLA_COMPAT_NODE=kafka asks Apache Kafka 4.3.1 the same: every code here
is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.nodes import wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.patience import SECONDS_MAX


@pytest.fixture
def topic(bootstrap: str) -> str:
    return confluent.create_topic(bootstrap)


@pytest.fixture
def producer(bootstrap: str) -> Iterator[TransactionWire]:
    with TransactionWire(bootstrap) as wire:
        wire.ready()
        yield wire


def settled(producer: TransactionWire, *states: str) -> str:
    """EndTxn is answered before the markers are written."""
    wait_until(lambda: producer.state() in states, SECONDS_MAX, f"one of {states}")
    return producer.state()


def test_time_outs_and_names_that_are_refused(producer: TransactionWire) -> None:
    codes = [producer.init(timeout_ms=one) for one in (0, -1, 900_001, 900_000)]
    assert codes == [50, 50, 50, 0]
    assert producer.init(name="") == 42


def test_nothing_to_end(producer: TransactionWire) -> None:
    codes = [producer.end(committed, version) for committed in (True, False) for version in (1, 4)]
    assert codes == [48] * 4
    assert producer.end(True, 5) == 48
    assert (producer.end(False, 5), producer.epoch) == (0, 1)
    assert settled(producer, "CompleteAbort")


def test_a_batch_outside_of_a_transaction(producer: TransactionWire, topic: str) -> None:
    codes = [producer.write(topic, 0, version=version) for version in (3, 9, 10, 11)]
    assert codes == [48, 48, 48, 120]
    assert producer.write(topic, 0, transactional_id=None) == 53
    for version in (9, 12):
        assert producer.write(topic, 0, version=version, transactional_id="nobody") == 49


def test_partitions_that_cannot_be_added(producer: TransactionWire, topic: str) -> None:
    assert producer.add(topic, 0, producer_id=5_555_555) == [49]
    assert producer.add(topic, 0, transactional_id="nobody") == [49]
    assert producer.add(topic, 0, transactional_id="") == [42]
    codes = [producer.add(topic, 0, version=one, producer_epoch=5)[0] for one in range(5)]
    assert codes == [47, 47, 90, 90, 90]
    assert producer.add("nope", 0) == [3]
    assert producer.add("__consumer_offsets", 0) == [29]
    assert sorted(producer.add(topic, 0, 7)) == [3, 55]
    assert producer.state() == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_verification(producer: TransactionWire, topic: str, version: int) -> None:
    assert producer.add(topic, 0, version=version, verify=True) == [120]
    assert producer.add(topic, 0, version=version, verify=True, producer_id=9_999_999) == [49]
    assert producer.add(topic, 0, version=version, verify=True, producer_epoch=9) == [90]
    assert producer.add(topic, 0) == [0]
    assert producer.add(topic, 0, version=version, verify=True) == [0]


def test_a_transaction_of_an_older_client(producer: TransactionWire, topic: str) -> None:
    assert producer.add(topic, 0) == [0]
    assert producer.add(topic, 0, version=0) == [0]
    assert producer.write(topic, 0) == 0
    assert producer.write(topic, 5) == 45
    assert producer.write(topic, 1, producer_epoch=3) == 47
    assert producer.stable_offset(topic) == 0
    codes = [producer.end(True, one, producer_epoch=7) for one in (0, 1, 2, 5)]
    assert codes == [47, 47, 90, 90]
    assert producer.end(True, producer_id=7_777_777) == 49
    assert producer.end(True, transactional_id="nobody") == 49
    assert producer.end(True, transactional_id="") == 42
    assert producer.end(True) == 0
    assert producer.end_when_ready(True) == 0
    assert producer.end_when_ready(False) == 48
    assert settled(producer, "CompleteCommit")
    # One record and its marker.
    assert producer.stable_offset(topic) == 2


def test_fencing_by_the_same_id(producer: TransactionWire, topic: str) -> None:
    """Row 66: the older of two producers can do nothing any more, nowhere."""
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic, 0) == 0
    with TransactionWire(producer.socket_address(), producer.name) as second:
        assert second.init() == 51
        assert (second.init_again(), second.epoch) == (0, 2)
    assert [producer.add(topic, 0, version=one)[0] for one in (1, 2, 3)] == [47, 90, 90]
    assert [producer.end(True, one) for one in (1, 2, 4, 5)] == [47, 90, 90, 90]
    assert [producer.write(topic, 1, version=one) for one in (9, 11, 12)] == [47, 47, 47]
    assert [producer.add_offsets("g", one) for one in (1, 2)] == [47, 90]
    codes = [producer.commit_offset("g", topic, 1, version=one) for one in range(6)]
    assert codes == [47] * 6


def test_a_producer_that_bumps_its_own_epoch(producer: TransactionWire) -> None:
    """KIP-360."""
    first, owner = producer.epoch, producer.producer_id
    assert producer.init(producer_id=owner, producer_epoch=first) == 0
    assert producer.epoch == first + 1
    assert producer.init(producer_id=owner, producer_epoch=first) == 0
    assert producer.epoch == first + 1
    codes = [producer.init(one, producer_id=1_234_567, producer_epoch=0) for one in (3, 4, 5)]
    assert codes == [47, 90, 90]
    assert producer.init(producer_id=owner, producer_epoch=first + 1) == 0
    assert producer.init(producer_id=owner, producer_epoch=first) == 90


def test_a_producer_that_aborts_by_bumping_its_epoch(producer: TransactionWire, topic: str) -> None:
    """KIP-360, over a transaction that is open."""
    old: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    assert producer.write(topic, 0, version=12) == 0
    assert producer.init(**old) == 51
    codes: list[int] = []

    def answered() -> bool:
        codes.append(producer.init(**old))
        return codes[-1] != 51

    wait_until(answered, SECONDS_MAX, "the open transaction is aborted")
    assert (codes[-1], producer.epoch) == (0, old["producer_epoch"] + 1)
    assert producer.write(topic, 1, version=12, **old) == 47
    assert producer.write(topic, 0, version=12) == 0
    assert producer.end(True, 5) == 0
    assert settled(producer, "CompleteCommit")


def test_a_producer_that_ran_out_of_time_goes_on(make_node: MakeNode) -> None:
    """With an epoch per transaction: it aborts what is aborted already and learns its new epoch."""
    node = make_node({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    topic = confluent.create_topic(node.bootstrap)
    with TransactionWire(node.bootstrap) as producer:
        producer.ready()
        assert producer.init(timeout_ms=1) == 0
        first = producer.epoch
        assert producer.write(topic, 0, version=12) == 0
        assert settled(producer, "CompleteAbort")
        assert producer.write(topic, 1, version=12) == 47
        codes = [producer.end(way, 5, take=False) for way in (True, False)]
        assert codes == [48, 0]
        assert [producer.end(way, 4) for way in (True, False)] == [90, 90]
        assert producer.end(False, 5) == 0
        assert producer.epoch == first + 1
        # A producer of the older kind names its epoch (KIP-360).
        assert producer.init(producer_id=producer.producer_id, producer_epoch=first) == 0
        assert producer.epoch == first + 1
        assert producer.write(topic, 0, version=12) == 0
        assert producer.end_when_ready(True, 5) == 0
        assert settled(producer, "CompleteCommit")


def test_an_epoch_for_each_transaction(producer: TransactionWire, topic: str) -> None:
    """KIP-890: partitions are added by the write, and a late request of before changes nothing."""
    first = producer.epoch
    assert producer.write(topic, 0, version=12) == 0
    assert producer.state() == "Ongoing"
    assert producer.write(topic, 1, version=12) == 0
    assert producer.end(True, 5, take=False) == 0
    assert producer.end_when_ready(True, 5, take=False) == 0
    assert producer.end_when_ready(False, 5, take=False) == 48
    assert (producer.end_when_ready(True, 5), producer.epoch) == (0, first + 1)
    for version in (9, 12):
        assert producer.write(topic, 2, version=version, producer_epoch=first) == 47
    assert producer.write(topic, 0, version=12) == 0
    for committed in (True, False):
        assert producer.end(committed, 5, take=False, producer_epoch=first) == 90
    assert producer.state() == "Ongoing"
    assert (producer.end(False, 5), producer.epoch) == (0, first + 2)
    assert settled(producer, "CompleteAbort")
    assert (producer.end_when_ready(False, 5), producer.epoch) == (0, first + 3)
    assert producer.end_when_ready(True, 5) == 48
    # Three records, two markers: an empty transaction leaves none.
    assert producer.stable_offset(topic) == 5


def test_a_client_that_goes_back_to_the_older_way(producer: TransactionWire, topic: str) -> None:
    assert producer.write(topic, 0, version=12) == 0
    assert producer.end(True, 5) == 0
    assert settled(producer, "CompleteCommit")
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic, 0) == 0
    assert producer.end(True, 4) == 0
    assert settled(producer, "CompleteCommit")
    # Begun the newer way and ended the older way, it has its marker all the same.
    assert producer.write(topic, 1, version=12) == 0
    assert producer.end(True, 4) == 0
    assert settled(producer, "CompleteCommit")
    assert producer.stable_offset(topic) == 6


def test_offsets_in_a_transaction(producer: TransactionWire, topic: str) -> None:
    group = confluent.new_name("group")
    codes = [producer.commit_offset(group, topic, 1, version=one) for one in (0, 2, 3, 4)]
    assert codes == [48, 48, 48, 120]
    assert producer.commit_offset(group, "nope", 1) == 3
    assert producer.commit_offset("", topic, 1) == 24
    assert producer.commit_offset(group, topic, 1, transactional_id="nobody") == 49
    assert producer.add_offsets(group, transactional_id="") == 42
    assert producer.add_offsets(group, transactional_id="nobody") == 49
    assert producer.add_offsets(group) == 0
    codes = [producer.commit_offset(group, topic, 1, version=one) for one in range(5)]
    assert codes == [0] * 5
    assert producer.commit_offset(group, topic, 1, generation_id=3, member_id="x") == 25
    assert producer.commit_offset(group, "nope", 1) == 3
    assert producer.commit_offset(group, topic, 1, metadata="😀" * 2048) == 0
    assert producer.commit_offset(group, topic, 1, metadata="😀" * 2048 + "x") == 12
    assert producer.end(True) == 0


def test_offsets_without_adding_them_first(producer: TransactionWire, topic: str) -> None:
    group = confluent.new_name("group")
    assert producer.commit_offset(group, topic, 5, version=5) == 0
    assert producer.state() == "Ongoing"
    assert producer.end(True, 5) == 0
    assert settled(producer, "CompleteCommit")


def test_descriptions(producer: TransactionWire, topic: str) -> None:
    unknown = producer.describe("nobody")
    assert (int(unknown.error_code), unknown.transaction_state) == (105, "")
    assert int(producer.describe("").error_code) == 42
    assert producer.add(topic, 0) == [0]
    told = producer.describe()
    assert (int(told.error_code), told.transaction_state) == (0, "Ongoing")
    assert [(one.topic, one.partitions) for one in told.topics] == [(topic, (0,))]
    assert (told.producer_id, told.producer_epoch) == (producer.producer_id, producer.epoch)


def test_lists(producer: TransactionWire, topic: str) -> None:
    assert producer.add(topic, 0) == [0]
    name = producer.name

    def names(**filters: Any) -> list[str]:
        answer = producer.list(**filters)
        assert int(answer.error_code) == 0
        return [one.transactional_id for one in answer.transaction_states]

    assert name in names() and name in names(state_filters=("Ongoing",))
    assert name not in names(state_filters=("Empty",))
    assert names(producer_id_filters=(producer.producer_id,)) == [name]
    assert names(transactional_id_pattern=name[:-1]) == []
    assert names(transactional_id_pattern=name[:-1] + ".") == [name]
    assert name not in names(duration_filter=1_000_000)
    told = producer.list(state_filters=("Nonsense", "Nonsense"))
    assert (told.unknown_state_filters, told.transaction_states) == (("Nonsense",), ())
    assert int(producer.list(transactional_id_pattern="(").error_code) == 128


def test_markers_by_hand(producer: TransactionWire, topic: str) -> None:
    """What `kafka-transactions abort` sends."""
    assert producer.add(topic, 0) == [0]
    assert producer.write(topic, 0) == 0
    assert producer.mark("nope", False) == 3
    assert producer.mark(topic, False, 2, transaction_version=2) == 47
    assert producer.stable_offset(topic) == 0
    assert producer.mark(topic, False) == 0
    assert producer.stable_offset(topic) == 2
    assert producer.mark(topic, False, coordinator_epoch=-1) == 52
    assert producer.end(False) == 0
    assert settled(producer, "CompleteAbort")


def test_markers_of_offsets_by_hand(producer: TransactionWire, topic: str) -> None:
    assert producer.mark("__consumer_offsets", False) == 0
