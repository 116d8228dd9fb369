"""Goal: a batch of a producer is stored once, in order, and an old epoch never comes back.
Method: each rule of features 6.2 and 7 by a directed case; snapshots there and back.
"""

from __future__ import annotations

from random import Random

import pytest

from ottla.base.errors import ProtocolError
from ottla.log import producer_state
from ottla.log.producer_state import (
    SEQUENCE_MAX,
    Marker,
    ProducerStates,
    last_sequence_of,
)
from ottla.protocol.error_codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from ottla.records.batch_header import Header, read_header
from tests.chaos.crash_world import abort_marker
from tests.seeds import seed_for
from tests.unit.log.world import batch

DAY_MS = 86_400_000


def header(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> Header:
    return read_header(
        batch(count, producer_id=7, epoch=epoch, sequence=sequence, transactional=transactional)
    )


class Producer:
    """Checks and writes as the log does."""

    def __init__(self) -> None:
        self.states = ProducerStates(DAY_MS)
        self.offset = 100

    def send(
        self, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
    ) -> int:
        """The base offset that is answered."""
        sent = header(sequence, count, epoch=epoch, transactional=transactional)
        seen = self.states.check(sent, True)
        if seen is not None:
            return seen[1] - seen[2]
        self.states.update(sent, self.offset, 5)
        self.offset += count
        return self.offset - count

    def refused(self, sequence: int, count: int = 1, *, epoch: int = 0) -> int:
        with pytest.raises(ProtocolError) as refusal:
            self.send(sequence, count, epoch=epoch)
        return refusal.value.code


def test_in_order() -> None:
    producer = Producer()
    assert [producer.send(0, 3), producer.send(3, 2), producer.send(5)] == [100, 103, 105]


def test_an_unknown_producer_may_start_anywhere() -> None:
    producer = Producer()
    assert producer.send(5) == 100
    assert producer.send(6) == 101


def test_the_last_five_batches_are_answered_with_their_first_offsets() -> None:
    producer = Producer()
    for number in range(7):
        producer.send(number * 2, 2)
    assert [producer.send(number * 2, 2) for number in range(2, 7)] == [104, 106, 108, 110, 112]
    assert producer.offset == 114, "nothing was stored again"
    assert producer.refused(2, 2) == OUT_OF_ORDER_SEQUENCE_NUMBER, "older than the last five"


def test_gap_and_overlap() -> None:
    producer = Producer()
    producer.send(0, 3)
    producer.send(3, 3)
    assert producer.refused(7) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.refused(5, 2) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.refused(3, 2) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.refused(3, 4) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.refused(4, 2) == OUT_OF_ORDER_SEQUENCE_NUMBER, "ends alike, starts elsewhere"


def test_epochs() -> None:
    producer = Producer()
    producer.send(0)
    producer.send(1)
    assert producer.refused(2, epoch=1) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, epoch=1) == 102
    assert producer.refused(2, epoch=0) == INVALID_PRODUCER_EPOCH
    assert producer.send(1, epoch=1) == 103


def test_the_sequence_wraps() -> None:
    producer = Producer()
    producer.send(SEQUENCE_MAX - 1)
    assert producer.send(SEQUENCE_MAX) == 101
    assert producer.send(0) == 102
    assert last_sequence_of(SEQUENCE_MAX, 2) == 1


def test_a_batch_may_wrap_inside() -> None:
    producer = Producer()
    producer.send(SEQUENCE_MAX - 1, 4)
    assert producer.send(SEQUENCE_MAX - 1, 4) == 100, "recognised"
    assert producer.send(2) == 104


def test_coordinators_have_no_sequences() -> None:
    states = ProducerStates(DAY_MS)
    states.update(header(0), 100, 5)
    assert states.check(header(9), False) is None
    with pytest.raises(ProtocolError):
        states.check(header(9), True)


def test_an_old_epoch_is_refused_to_coordinators_too() -> None:
    states = ProducerStates(DAY_MS)
    states.update(header(0, epoch=3), 100, 5)
    with pytest.raises(ProtocolError) as refusal:
        states.check(header(0, epoch=2), False)
    assert refusal.value.code == INVALID_PRODUCER_EPOCH


# -- transactions ---------------------------------------------------------------------------------

MARKER = read_header(abort_marker(7, True, 1))


def test_a_plain_batch_does_not_slip_into_a_transaction() -> None:
    producer = Producer()
    producer.send(0, transactional=True)
    assert producer.refused(1) == INVALID_TXN_STATE
    assert producer.send(1, transactional=True) == 101


def test_a_transaction_holds_the_stable_offset_until_its_marker_is_below_the_watermark() -> None:
    producer = Producer()
    producer.send(0, transactional=True)
    producer.send(1, transactional=True)
    states = producer.states
    assert states.first_unstable_offset() == 100
    completed = states.update_marker(MARKER, 102, Marker(True, 1), 5)
    assert completed is not None
    assert (completed.first_offset, completed.last_offset) == (100, 102)
    assert (completed.aborted, completed.last_stable_offset) == (True, 103)
    assert states.first_unstable_offset() == 100, "decided, but above the watermark"
    states.on_high_watermark(102)
    assert states.first_unstable_offset() == 100
    states.on_high_watermark(103)
    assert states.first_unstable_offset() is None


def test_the_oldest_of_several_transactions_counts() -> None:
    states = ProducerStates(DAY_MS)
    other = read_header(batch(producer_id=8, sequence=0, transactional=True))
    states.update(header(0, transactional=True), 100, 5)
    states.update(other, 101, 5)
    completed = states.update_marker(MARKER, 102, Marker(False, 1), 5)
    assert completed is not None and completed.last_stable_offset == 101
    states.on_high_watermark(103)
    assert states.first_unstable_offset() == 101


def test_a_marker_of_an_empty_transaction_changes_nothing_visible() -> None:
    states = ProducerStates(DAY_MS)
    assert states.update_marker(MARKER, 100, Marker(True, 1), 5) is None
    assert states.check(header(17), True) is None, "of this producer no sequence is known"


def test_markers_are_fenced() -> None:
    states = ProducerStates(DAY_MS)
    states.check_marker(MARKER, Marker(True, 1))
    states.update(header(0, epoch=1, transactional=True), 100, 5)
    with pytest.raises(ProtocolError) as refusal:
        states.check_marker(MARKER, Marker(True, 1))
    assert refusal.value.code == INVALID_PRODUCER_EPOCH
    states = ProducerStates(DAY_MS)
    states.update(header(0, transactional=True), 100, 5)
    states.update_marker(MARKER, 101, Marker(True, 5), 5)
    states.check_marker(MARKER, Marker(True, 5))
    with pytest.raises(ProtocolError) as refusal:
        states.check_marker(MARKER, Marker(True, 4))
    assert refusal.value.code == TRANSACTION_COORDINATOR_FENCED


def test_with_its_last_marker_a_producer_is_forgotten() -> None:
    """No producer ever has the highest epoch: after a marker that has it, nobody will write."""
    states = ProducerStates(DAY_MS)
    states.update(header(0, transactional=True), 100, 5)
    last = (*MARKER[:10], 32767, *MARKER[11:])
    completed = states.update_marker(last, 101, Marker(True, 1), 5)
    assert completed is not None
    assert (completed.producer_id, completed.first_offset, completed.last_offset) == (7, 100, 101)
    assert states.first_unstable_offset() == 100
    states.on_high_watermark(102)
    assert states.first_unstable_offset() is None
    assert not states.entries and not states.open_transactions and not states.snapshot()
    assert states.update_marker(last, 102, Marker(True, 1), 5) is None
    assert not states.entries


def test_a_marker_of_a_new_epoch_starts_the_sequence_again() -> None:
    """Transactions v2 (KIP-890): the coordinator bumps the epoch with the marker."""
    states = ProducerStates(DAY_MS)
    states.update(header(0, transactional=True), 100, 5)
    bumped = (*MARKER[:10], 1, *MARKER[11:])
    states.update_marker(bumped, 101, Marker(False, 1), 5)
    assert states.check(header(0, epoch=1), True) is None
    with pytest.raises(ProtocolError):
        states.check(header(1, epoch=1), True)


# -- life -----------------------------------------------------------------------------------------


def test_who_is_silent_for_too_long_is_forgotten() -> None:
    states = ProducerStates(DAY_MS)
    states.update(header(0), 100, 1_000)
    assert states.expire(1_000 + DAY_MS - 1) == 0
    assert states.expire(1_000 + DAY_MS) == 1
    assert states.check(header(9), True) is None


def test_an_open_transaction_keeps_its_producer() -> None:
    states = ProducerStates(DAY_MS)
    states.update(header(0, transactional=True), 100, 1_000)
    assert states.expire(10 * DAY_MS) == 0


def test_a_snapshot_brings_back_what_it_holds() -> None:
    states = ProducerStates(DAY_MS)
    for number in range(3):
        states.update(header(number, transactional=True), 100 + number, 5)
    again = ProducerStates(DAY_MS)
    again.load(states.snapshot(), 103, 77)
    entry = again.entries[7]
    assert (entry.next_sequence, entry.last_offset(), entry.epoch) == (3, 102, 0)
    assert not entry.complete, "the other batches have to be looked up"
    assert again.first_unstable_offset() == 100
    assert again.end_offset == 103
    assert again.snapshot() == states.snapshot()


def test_loading_replaces_everything() -> None:
    states = ProducerStates(DAY_MS)
    states.update(header(0, transactional=True), 100, 5)
    states.update_marker(MARKER, 101, Marker(True, 1), 5)
    states.load([], 50, 5)
    assert (states.entries, states.first_unstable_offset()) == ({}, None)


def test_the_first_unstable_offset_is_the_smallest_of_all_whatever_the_order() -> None:
    """It is kept up to date step by step; here it is found by looking at everything."""
    dice = Random(seed_for("first unstable offset"))
    states = ProducerStates(DAY_MS)
    opened: dict[int, int] = {}
    decided: dict[int, int] = {}
    watermark = 0
    for offset in range(3000):
        producer_id = dice.randrange(20)
        if producer_id in opened:
            first = opened.pop(producer_id)
            ended = states.update_marker(of(producer_id), offset, Marker(True, 0), 5)
            assert ended is not None and ended.first_offset == first
            assert ended.last_stable_offset == min(opened.values(), default=offset + 1)
            decided[first] = offset
        else:
            opened[producer_id] = offset
            states.update(of(producer_id), offset, 5)
        if dice.random() < 0.3:
            watermark = dice.randint(watermark, offset + 1)
            states.on_high_watermark(watermark)
            decided = {one: last for one, last in decided.items() if last >= watermark}
        everything = [*opened.values(), *decided]
        assert states.first_unstable_offset() == min(everything, default=None)
        if dice.random() < 0.01:
            saved = states.snapshot()
            dice.shuffle(saved)
            states.load(saved, offset + 1, 5)
            decided.clear()


def of(producer_id: int) -> Header:
    return read_header(batch(producer_id=producer_id, epoch=0, sequence=0, transactional=True))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> ProducerStates:
    """A partition that remembers twenty."""
    monkeypatch.setattr(producer_state, "PARTITION_PRODUCERS_MAX", 20)
    return ProducerStates(DAY_MS)


def plain(producer_id: int) -> Header:
    return read_header(batch(producer_id=producer_id, epoch=0, sequence=0))


def test_of_too_many_producers_those_that_were_idle_for_longest_are_forgotten(
    few: ProducerStates,
) -> None:
    for number in range(20):
        few.update(plain(number), number, now_ms=number)
    few.update(plain(0), 20, now_ms=100)  # it has written again
    assert len(few.entries) == 20
    few.update(plain(77), 21, now_ms=101)
    assert few.entries.keys() == {0, *range(3, 20), 77}
    for number in range(1000):
        few.update(plain(100 + number), 100 + number, now_ms=200 + number)
        assert len(few.entries) <= 20
    assert max(few.entries) == 1099


def test_open_transactions_keep_their_producers_however_many_they_are(few: ProducerStates) -> None:
    few.update(plain(0), 0, now_ms=0)
    for number in range(1, 100):
        few.update(of(number), number, now_ms=number)
    assert few.entries.keys() == set(range(1, 100))
    assert len(few.open_transactions) == 99
    for number in range(1, 100):
        few.update_marker(of(number), 100 + number, Marker(False, 0), 200 + number)
    few.update(plain(300), 300, now_ms=300)
    few.update(plain(301), 301, now_ms=301)
    few.update(plain(302), 302, now_ms=302)
    assert len(few.entries) <= 20
    assert {300, 301, 302} <= few.entries.keys()


def test_a_snapshot_with_too_many_is_cut_too(
    few: ProducerStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        few.update(plain(number), number, now_ms=number)
    saved = [one._replace(timestamp=one.producer_id) for one in few.snapshot()]
    monkeypatch.setattr(producer_state, "PARTITION_PRODUCERS_MAX", 10)
    few.load(saved, 20, now_ms=50)
    assert few.entries.keys() == set(range(11, 20))
