"""Goal: a follower asks for the right things, and an answer changes only what it was asked for.
Method: requests are read as a leader reads them; answers are made by hand, also such as no honest
leader sends.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from ottla.base.errors import MalformedRequest, StorageError
from ottla.protocol.error_codes import (
    CORRUPT_MESSAGE,
    FETCH_SESSION_ID_NOT_FOUND,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    STALE_BROKER_EPOCH,
)
from ottla.protocol.fetch import (
    FetchedPartition,
    FetchRequest,
    fetch_response_parts,
    read_fetch_request,
)
from ottla.protocol.fetch_request import NO_HIGH_WATERMARK
from ottla.protocol.replica_fetch import VERSION
from ottla.records.batch_header import read_header
from ottla.replication.follower_fetch import FetchEffects, FetchLimits, FollowerFetch
from ottla.replication.partition import Partition
from tests.unit.log.world import batch
from tests.unit.replication.replicas import TOPIC_ID, Replica, assigned

Asked = dict[int, tuple[int, int]]


class Content:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)


class Setting:
    """Broker 2 copies partitions of `topic` from broker 1, which has three records in each."""

    def __init__(self, count: int = 1) -> None:
        self.leader = Replica(1).lead(in_sync=(1,))
        self.leader.produce(3)
        self.fetch = FollowerFetch(2, 77, FetchLimits())
        self.replicas = [self._follower(index) for index in range(count)]

    def _follower(self, index: int) -> Replica:
        replica = Replica(2)
        replica.partition = Partition("topic", index, TOPIC_ID, "/data")
        replica.partition.log = replica.log
        replica.partition.on_alarm = lambda partition, reason: replica.alarms.append(reason)
        replica.assume(assigned(1, 5))
        self.fetch.add(replica.partition)
        return replica

    def ask(self, now_ms: int = 0) -> FetchRequest | None:
        body = self.fetch.request(now_ms)
        return None if body is None else read_fetch_request(VERSION, memoryview(body))

    def asked(self, now_ms: int = 0) -> Asked:
        """Offset and leader epoch by partition."""
        request = self.ask(now_ms)
        assert request is not None
        return {
            one.partition: (one.fetch_offset, one.current_leader_epoch)
            for _, _, partitions in request.topics
            for one in partitions
        }

    def known(self) -> list[int]:
        """The watermarks that the next request tells."""
        request = self.ask()
        assert request is not None
        return [one.high_watermark for _, _, partitions in request.topics for one in partitions]

    def answer(
        self, *partitions: FetchedPartition, code: int = 0, session_id: int = 9, now_ms: int = 0
    ) -> FetchEffects:
        topics = [(None, TOPIC_ID, partitions)] if partitions else []
        parts, _ = fetch_response_parts(VERSION, 0, code, session_id, topics)
        body = b"".join(part.content if isinstance(part, Content) else part for part in parts)
        return self.fetch.on_answer(memoryview(body), now_ms)

    def records(self, index: int = 0, high_watermark: int = 3) -> FetchedPartition:
        content = Content(self.leader.content())
        return FetchedPartition(index, 0, high_watermark, -1, 0, None, -1, content)


def failed(index: int, code: int, log_start: int = -1) -> FetchedPartition:
    return FetchedPartition(index, code, -1, -1, log_start, None, -1, None)


def parted(index: int, epoch: int, end_offset: int) -> FetchedPartition:
    return FetchedPartition(index, 0, 0, -1, 0, None, -1, None, (epoch, end_offset))


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_the_first_request_is_for_everything() -> None:
    setting = Setting(3)
    request = setting.ask()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.replica_id, request.replica_epoch) == (2, 77)
    assert (request.max_wait_ms, request.min_bytes) == (500, 1)
    [(_, topic_id, partitions)] = request.topics
    assert topic_id == TOPIC_ID
    assert [one.partition for one in partitions] == [0, 1, 2]
    assert partitions[0].last_fetched_epoch == -1


def test_later_ones_are_for_what_has_changed() -> None:
    setting = Setting(3)
    setting.ask()
    setting.answer(setting.records(1))
    request = setting.ask()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (9, 1)
    [(_, _, [one])] = request.topics
    assert (one.partition, one.fetch_offset, one.last_fetched_epoch) == (1, 3, 5)
    setting.answer()
    request = setting.ask()
    assert request is not None
    assert (request.session_epoch, request.topics) == (2, [])


def test_who_comes_into_the_session_says_up_to_where_it_knows_what_is_committed(
    setting: Setting,
) -> None:
    """The leader takes what it has told for known, and the answer may have come while nobody was
    there to take it (seed 964382558)."""
    assert setting.known() == [0]
    setting.answer(setting.records(high_watermark=2))
    assert setting.known() == [NO_HIGH_WATERMARK], "what it takes from here on is known"
    setting.replicas[0].assume(assigned(1, 6))
    setting.fetch.add(setting.replicas[0].partition)
    setting.answer(setting.records(high_watermark=3))
    assert setting.known() == [2]


def test_records_are_stored_with_what_the_leader_says_of_them(setting: Setting) -> None:
    setting.ask()
    effects = setting.answer(setting.records(high_watermark=2))
    replica = setting.replicas[0]
    assert replica.content() == setting.leader.content()
    assert replica.partition.high_watermark == 2
    assert effects.bytes_stored == len(setting.leader.content())


def test_a_new_log_start_is_told_the_leader(setting: Setting) -> None:
    setting.ask()
    setting.answer(setting.records())
    setting.ask()
    setting.answer(FetchedPartition(0, 0, 3, -1, 2, None, -1, None))
    request = setting.ask()
    assert request is not None
    [(_, _, [one])] = request.topics
    assert one.log_start_offset == 2


def test_who_is_removed_is_forgotten() -> None:
    setting = Setting(2)
    setting.ask()
    setting.answer()
    setting.fetch.remove(setting.replicas[1].partition)
    request = setting.ask()
    assert request is not None
    assert request.forgotten == [(None, TOPIC_ID, [1])]
    setting.answer(setting.records(1))
    assert setting.replicas[1].log.log_end_offset == 0


def test_without_anybody_left_nothing_is_asked(setting: Setting) -> None:
    setting.ask()
    setting.answer()
    setting.fetch.remove(setting.replicas[0].partition)
    assert setting.ask() is None
    setting.fetch.add(setting.replicas[0].partition)
    request = setting.ask()
    assert request is not None
    assert request.session_epoch == 0


def test_an_answer_of_the_epoch_before_changes_nothing(setting: Setting) -> None:
    setting.ask()
    replica = setting.replicas[0]
    replica.assume(assigned(1, 6))
    setting.answer(setting.records())
    assert replica.log.log_end_offset == 0
    setting.fetch.add(replica.partition)
    assert setting.asked() == {0: (0, 6)}


def test_nor_does_one_to_a_request_before_it_was_added_again() -> None:
    setting = Setting(2)
    setting.ask()
    setting.answer()
    setting.ask()  # under way
    replica = setting.replicas[0]
    replica.assume(assigned(1, 6))
    setting.fetch.add(replica.partition)
    assert setting.fetch.wants_to_interrupt()
    assert setting.asked() == {0: (0, 6)}
    setting.answer(setting.records())
    assert replica.log.log_end_offset == 0
    setting.answer(setting.records())
    assert replica.log.log_end_offset == 3


def interrupted_twice() -> Setting:
    """The first partition has stored what the leader sent, and has been named again from there on,
    while an answer is under way that the leader owes to a request before that."""
    setting = Setting(3)
    second, third = setting.replicas[1].partition, setting.replicas[2].partition
    setting.fetch.remove(second)
    setting.fetch.remove(third)
    setting.asked()
    setting.answer()
    assert setting.asked() == {}
    setting.fetch.add(second)
    assert setting.fetch.wants_to_interrupt()
    assert setting.asked() == {1: (0, 5)}
    setting.answer(setting.records(high_watermark=0))
    setting.fetch.add(third)
    assert setting.fetch.wants_to_interrupt()
    assert setting.asked() == {0: (3, 5), 2: (0, 5)}
    return setting


def test_nor_records_for_a_request_before_the_last_that_named_it() -> None:
    """The leader did not know yet that they had come, and sent them again with the next answer."""
    setting = interrupted_twice()
    before = setting.replicas[0].content()
    effects = setting.answer(setting.records(high_watermark=2))
    assert (effects.complaints, effects.bytes_stored) == ([], 0)
    assert setting.replicas[0].content() == before
    assert setting.fetch.next_due_ms() is None
    # What is committed is told once, so this is the time to learn it.
    assert setting.replicas[0].partition.high_watermark == 2


@pytest.mark.parametrize("answer", [failed(0, NOT_LEADER_OR_FOLLOWER), parted(0, 4, 1)])
def test_nor_a_refusal_of_such_a_request(answer: FetchedPartition) -> None:
    setting = interrupted_twice()
    before = setting.replicas[0].content()
    effects = setting.answer(answer)
    assert not effects.has_more_than_records()
    assert setting.replicas[0].content() == before
    assert setting.fetch.next_due_ms() is None
    setting.answer(failed(0, NOT_LEADER_OR_FOLLOWER))
    assert setting.fetch.next_due_ms() is not None


def test_a_log_start_in_such_an_answer_is_told_the_leader() -> None:
    setting = interrupted_twice()
    setting.answer(FetchedPartition(0, 0, 3, -1, 2, None, -1, None))
    assert setting.replicas[0].log.log_start_offset == 2
    setting.answer()
    request = setting.ask()
    assert request is not None
    [(_, _, [one])] = request.topics
    assert (one.partition, one.log_start_offset) == (0, 2)


def test_nor_records_for_another_place(setting: Setting) -> None:
    setting.ask()
    setting.answer(setting.records())
    setting.ask()
    effects = setting.answer(setting.records())
    assert setting.replicas[0].log.log_end_offset == 3
    assert effects.complaints  # the leader sent what is there already
    assert setting.fetch.next_due_ms() is not None


def test_a_partition_nobody_asked_for_is_ignored(setting: Setting) -> None:
    setting.ask()
    setting.answer(setting.records(5))
    parts, _ = fetch_response_parts(
        VERSION, 0, 0, 9, [(None, uuid.UUID(int=99), [setting.records()])]
    )
    setting.ask()
    body = b"".join(part.content if isinstance(part, Content) else part for part in parts)
    setting.fetch.on_answer(memoryview(body), 0)
    assert setting.replicas[0].log.log_end_offset == 0


@pytest.mark.parametrize("code", [FETCH_SESSION_ID_NOT_FOUND, STALE_BROKER_EPOCH])
def test_a_lost_session_begins_again(setting: Setting, code: int) -> None:
    setting.ask()
    setting.answer()
    setting.ask()
    count = setting.fetch.session_count
    effects = setting.answer(code=code, session_id=0)
    assert setting.fetch.session_count > count
    assert (effects.refusal is not None) == (code == STALE_BROKER_EPOCH)
    assert setting.asked() == {0: (0, 5)}


def test_after_a_failure_everything_is_asked_again(setting: Setting) -> None:
    setting.ask()
    setting.answer()
    setting.ask()
    setting.fetch.on_failure()
    request = setting.ask()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (0, 0)


def test_a_leader_that_keeps_no_session(setting: Setting) -> None:
    for _ in range(2):
        request = setting.ask()
        assert request is not None
        assert (request.session_epoch, len(request.topics)) == (0, 1)
        setting.answer(session_id=0)


def test_an_error_rests_a_partition_and_no_other() -> None:
    setting = Setting(2)
    setting.ask()
    effects = setting.answer(failed(0, NOT_LEADER_OR_FOLLOWER), now_ms=100)
    assert not effects.complaints
    request = setting.ask(now_ms=100)
    assert request is not None
    assert request.forgotten == [(None, TOPIC_ID, [0])]
    setting.answer()
    due_ms = setting.fetch.next_due_ms()
    assert due_ms is not None
    assert setting.asked(due_ms) == {0: (0, 5)}


def test_errors_in_a_row_rest_it_longer_up_to_the_setting(setting: Setting) -> None:
    now_ms, pauses = 0, []
    for _ in range(9):
        assert setting.asked(now_ms) == {0: (0, 5)}
        setting.answer(failed(0, NOT_LEADER_OR_FOLLOWER), now_ms=now_ms)
        due_ms = setting.fetch.next_due_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
    assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]


def test_a_broken_batch_is_not_stored(setting: Setting) -> None:
    content = bytearray(setting.leader.content())
    content[-1] ^= 1
    setting.ask()
    broken = FetchedPartition(0, 0, 3, -1, 0, None, -1, Content(bytes(content)))
    effects = setting.answer(broken)
    assert "broken batch" in effects.complaints[0]
    assert setting.replicas[0].log.log_end_offset == 2
    assert setting.fetch.next_due_ms() == 1000
    assert CORRUPT_MESSAGE == 2


def test_a_cut_waits_for_its_checkpoint(setting: Setting) -> None:
    setting.ask()
    setting.answer(setting.records(high_watermark=1))
    setting.replicas[0].world.flush()
    setting.ask()
    effects = setting.answer(parted(0, 5, 2))
    replica = setting.replicas[0]
    assert replica.log.log_end_offset == 2
    assert effects.cut == [replica.partition]
    assert setting.ask() is None
    setting.fetch.resume(replica.partition)
    assert setting.asked() == {0: (2, 5)}


def test_an_order_to_lose_what_is_committed_stops_the_replica() -> None:
    setting = Setting(2)
    setting.ask()
    setting.answer(setting.records(0, high_watermark=3), setting.records(1))
    setting.ask()
    setting.answer(parted(0, 5, 2))
    replica = setting.replicas[0]
    assert replica.alarms[0].startswith("R11")
    assert replica.log.log_end_offset == 3
    request = setting.ask()
    assert request is not None
    assert request.topics == []


def test_a_log_below_the_leaders_start_starts_over(setting: Setting) -> None:
    setting.ask()
    effects = setting.answer(failed(0, OFFSET_OUT_OF_RANGE, log_start=40))
    replica = setting.replicas[0]
    assert effects.cut == [replica.partition]
    setting.fetch.resume(replica.partition)
    assert setting.asked() == {0: (40, 5)}


def test_a_start_within_the_log_is_no_reason_to_drop_it(setting: Setting) -> None:
    setting.ask()
    setting.answer(setting.records())
    setting.ask()
    effects = setting.answer(failed(0, OFFSET_OUT_OF_RANGE, log_start=3))
    assert setting.replicas[0].log.log_end_offset == 3
    assert not effects.cut
    assert effects.complaints


def test_what_has_to_be_on_the_disk_is_synced_before_it_is_told(setting: Setting) -> None:
    replica = setting.replicas[0]
    replica.log.config = replace(replica.log.config, flush_messages=1)
    setting.ask()
    effects = setting.answer(setting.records())
    assert effects.unsafe == [replica.partition]
    assert setting.ask() is None
    replica.world.flush()
    setting.fetch.resume(replica.partition)
    assert setting.asked() == {0: (3, 5)}


def test_a_failing_disk_is_told(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = setting.replicas[0]
    failure = StorageError("/data", "append")

    def fail(*arguments: object) -> None:
        raise failure

    monkeypatch.setattr(type(replica.log), "append_replicated", fail)
    setting.ask()
    assert setting.answer(setting.records()).failures == [failure]


def test_who_is_throttled_rests() -> None:
    setting = Setting(2)
    setting.fetch = FollowerFetch(
        2, 77, FetchLimits(), lambda partition, stored: 300 if partition.partition == 0 else 0
    )
    for replica in setting.replicas:
        setting.fetch.add(replica.partition)
    setting.ask()
    setting.answer(setting.records(0), setting.records(1))
    assert setting.asked() == {1: (3, 5)}
    setting.answer()
    assert setting.asked(300) == {0: (3, 5)}


def test_an_answer_that_is_none(setting: Setting) -> None:
    setting.ask()
    with pytest.raises(MalformedRequest):
        setting.fetch.on_answer(memoryview(b"\0\0"), 0)


def sent(content: bytes) -> FetchedPartition:
    return FetchedPartition(0, 0, 3, -1, 0, None, -1, Content(content))


def test_it_is_said_once_however_often_it_is_tried(setting: Setting) -> None:
    content = setting.leader.content()
    last = len(content) // 3 * 2
    broken = content[:-1] + bytes([content[-1] ^ 1])
    complaints = []
    for now_ms in range(0, 10_000, 1000):
        setting.ask(now_ms)
        complaints += setting.answer(sent(broken), now_ms=now_ms).complaints
        assert setting.fetch.next_due_ms() == now_ms + 1000
        broken = broken[-len(content) + last :]
    assert len(complaints) == 1
    setting.ask(10_000)
    assert not setting.answer(sent(content[last:]), now_ms=10_000).complaints
    assert setting.replicas[0].log.log_end_offset == 3


def with_a_gap(content: bytes) -> bytes:
    """The last of the three batches has a higher offset, which no CRC covers."""
    changed = bytearray(content)
    at = len(content) // 3 * 2
    assert changed[at + 7] == 2
    changed[at + 7] = 9
    return bytes(changed)


def test_offsets_that_are_missing_are_asked_for_again_before_they_are_believed(
    setting: Setting,
) -> None:
    log = setting.replicas[0].log
    content = with_a_gap(setting.leader.content())
    setting.ask()
    effects = setting.answer(sent(content))
    assert "after 2 the leader sent 9" in effects.complaints[0]
    assert log.log_end_offset == 2
    last = content[len(content) // 3 * 2 :]
    for now_ms, end in ((1000, 2), (2000, 2), (3000, 10)):
        assert setting.asked(now_ms) == {0: (2, 5)}
        assert not setting.answer(sent(last), now_ms=now_ms).complaints
        assert log.log_end_offset == end


def test_in_a_compacted_log_they_are_nothing_special(setting: Setting) -> None:
    log = setting.replicas[0].log
    log.config = replace(log.config, cleanup_policy=frozenset({"compact"}))
    setting.ask()
    setting.answer(sent(with_a_gap(setting.leader.content())))
    assert log.log_end_offset == 10


def test_a_log_that_starts_within_a_batch_begins_with_that_batch(setting: Setting) -> None:
    """Records were deleted up to the middle of it; then somebody copies the log anew."""
    leader, replica = setting.leader, setting.replicas[0]
    long = batch(10)
    leader.partition.append(bytearray(long), read_header(long), 0)
    setting.ask()
    setting.answer(failed(0, OFFSET_OUT_OF_RANGE, log_start=7))
    setting.fetch.resume(replica.partition)
    assert setting.asked() == {0: (7, 5)}
    first = len(leader.content()) - len(long)
    records = Content(leader.content()[first:])
    effects = setting.answer(FetchedPartition(0, 0, 13, -1, 7, None, -1, records))
    assert (replica.log.first_segment_offset, replica.log.log_start_offset) == (3, 7)
    assert (replica.log.log_end_offset, replica.partition.high_watermark) == (13, 13)
    assert effects.cut == [replica.partition], "a recovery point of 7 has to go first"
    setting.fetch.resume(replica.partition)
    assert setting.asked() == {0: (13, 5)}


def test_an_empty_log_begins_with_no_batch_that_ends_before_it(setting: Setting) -> None:
    replica = setting.replicas[0]
    setting.ask()
    setting.answer(failed(0, OFFSET_OUT_OF_RANGE, log_start=7))
    setting.fetch.resume(replica.partition)
    for records in (setting.leader.content(), b"too short", bytes(100)):
        setting.ask(10_000)
        setting.answer(sent(records), now_ms=0)
        assert (replica.log.first_segment_offset, replica.log.log_end_offset) == (7, 7)
