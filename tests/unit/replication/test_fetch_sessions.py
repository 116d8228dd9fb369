"""Goal: a session means what the reader believes it means, and never grows past its bounds."""

from __future__ import annotations

from itertools import count

import pytest

from ottla.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
)
from ottla.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from ottla.replication.fetch_sessions import (
    EPOCH_MAX,
    SESSION_IDLE_MS_MIN,
    FetchSessions,
    SessionAnswer,
)


def wanted(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)


def a_request(
    session_id: int,
    epoch: int,
    partitions: list[FetchPartition],
    forgotten: list[int] | None = None,
) -> FetchRequest:
    topics: list[FetchTopic] = [("t", None, partitions)] if partitions else []
    gone: list[ForgottenTopic] = [("t", None, forgotten)] if forgotten else []
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten=gone,
    )


def sessions(slots_max: int = 10) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots_max, lambda: next(ids))


def offsets(answer: SessionAnswer) -> dict[int, int]:
    return {key[1]: read.request.fetch_offset for key, read in answer.partitions}


def fetched(high_watermark: int, error_code: int = NONE) -> FetchedPartition:
    return FetchedPartition(0, error_code, high_watermark, -1, 0, None, -1, None, None, None)


def test_a_full_request_makes_a_session_and_the_next_ones_change_it() -> None:
    cache = sessions()
    first = cache.resolve(a_request(0, 0, [wanted(0), wanted(1)]), False, 0)
    assert (first.session_id(), first.incremental, offsets(first)) == (1, False, {0: 0, 1: 0})
    second = cache.resolve(a_request(1, 1, [wanted(1, 5), wanted(2)]), False, 0)
    assert (second.incremental, offsets(second)) == (True, {0: 0, 1: 5, 2: 0})
    third = cache.resolve(a_request(1, 2, [], forgotten=[0]), False, 0)
    assert offsets(third) == {1: 5, 2: 0}


def test_what_is_named_and_forgotten_in_one_request_is_forgotten() -> None:
    cache = sessions()
    cache.resolve(a_request(0, 0, [wanted(0), wanted(1)]), False, 0)
    answer = cache.resolve(a_request(1, 1, [wanted(0, 5)], forgotten=[0]), False, 0)
    assert offsets(answer) == {1: 0}


def test_a_sessionless_request_leaves_nothing_behind() -> None:
    cache = sessions()
    answer = cache.resolve(a_request(0, -1, [wanted(0)]), False, 0)
    assert (answer.session_id(), offsets(answer), len(cache)) == (0, {0: 0}, 0)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_of_a_partition_that_is_named_twice_the_last_counts(epoch: int) -> None:
    request = a_request(0, epoch, [wanted(0, 3), wanted(1, 4), wanted(0, 5)])
    answer = sessions().resolve(request, False, 0)
    assert [(key[1], read.request.fetch_offset) for key, read in answer.partitions] == [
        (0, 5),
        (1, 4),
    ]


def test_a_session_may_begin_with_nothing_in_it() -> None:
    """Kafka hands one out, too; both end it when the next request brings nothing either."""
    cache = sessions()
    assert cache.resolve(a_request(0, 0, []), False, 0).session_id() == 1
    assert offsets(cache.resolve(a_request(1, 1, [wanted(2, 7)]), False, 0)) == {2: 7}
    assert cache.resolve(a_request(0, 0, []), False, 0).session_id() == 2
    assert cache.resolve(a_request(2, 1, []), False, 0).session_id() == 0
    assert len(cache) == 1


def test_an_epoch_of_minus_one_closes_the_session() -> None:
    cache = sessions()
    cache.resolve(a_request(0, 0, [wanted(0)]), False, 0)
    cache.resolve(a_request(1, -1, [wanted(0)]), False, 0)
    assert len(cache) == 0


def test_unknown_ids_wrong_epochs_and_changed_addressing_are_refused() -> None:
    cache = sessions()
    cache.resolve(a_request(0, 0, [wanted(0)]), False, 0)
    assert cache.resolve(a_request(9, 1, []), False, 0).error_code == FETCH_SESSION_ID_NOT_FOUND
    for epoch in (7, -2):
        answer = cache.resolve(a_request(1, epoch, []), False, 0)
        assert answer.error_code == INVALID_FETCH_SESSION_EPOCH
    assert cache.resolve(a_request(0, -2, []), False, 0).error_code == FETCH_SESSION_ID_NOT_FOUND
    assert cache.resolve(a_request(1, 1, []), True, 0).error_code == FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.resolve(a_request(1, 1, []), False, 0).error_code == NONE


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    session = cache.resolve(a_request(0, 0, [wanted(0)]), False, 0).session
    assert session is not None
    session.epoch = EPOCH_MAX
    assert cache.resolve(a_request(1, EPOCH_MAX, []), False, 0).error_code == NONE
    assert cache.resolve(a_request(1, 1, []), False, 0).error_code == NONE


def test_a_full_cache_refuses_a_session_but_not_the_request() -> None:
    cache = sessions(slots_max=1)
    cache.resolve(a_request(0, 0, [wanted(0)]), False, 0)
    second = cache.resolve(a_request(0, 0, [wanted(0)]), False, SESSION_IDLE_MS_MIN - 1)
    assert (second.session_id(), offsets(second)) == (0, {0: 0})
    third = cache.resolve(a_request(0, 0, [wanted(0)]), False, SESSION_IDLE_MS_MIN)
    assert (third.session_id(), len(cache)) == (2, 1)


@pytest.mark.parametrize(
    ("told", "next_one", "telling"),
    [
        (fetched(5), fetched(5), False),
        (fetched(5), fetched(6), True),
        (fetched(5), fetched(-1, NOT_LEADER_OR_FOLLOWER), True),
        (fetched(5, NOT_LEADER_OR_FOLLOWER), fetched(5), True),
    ],
)
def test_only_news_is_worth_telling(
    told: FetchedPartition, next_one: FetchedPartition, telling: bool
) -> None:
    answer = sessions().resolve(a_request(0, 0, [wanted(0)]), False, 0)
    (_, partition) = answer.partitions[0]
    partition.worth_telling(told)
    assert partition.worth_telling(next_one) is telling


def test_partitions_that_were_served_go_to_the_end_of_the_line() -> None:
    answer = sessions().resolve(a_request(0, 0, [wanted(0), wanted(1), wanted(2)]), False, 0)
    assert answer.session is not None
    answer.session.served(("t", 0))
    assert [key[1] for key in answer.session.partitions] == [1, 2, 0]
