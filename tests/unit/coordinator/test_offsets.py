"""Goal: of all commits for one partition that count, the one that is last in the log is told.
Method: plain commits, tombstones and commits of two transactions, in every order, against the rule.
"""

from __future__ import annotations

import itertools

from ottla.coordinator.offsets import CommittedOffsets
from ottla.coordinator.offsets_records import NO_TIMESTAMP, Commit

KEY = ("group", "topic", 0)

Event = tuple[str, int]

EVENTS: tuple[Event, ...] = (
    *(("in transaction", 1), ("committed", 1)),
    *(("in transaction", 2), ("committed", 2), ("aborted", 2)),
    *(("plain", -1), ("tombstone", -1)),
)


def a_commit(offset: int) -> Commit:
    return Commit(offset, -1, "", 1000, NO_TIMESTAMP)


def held(offsets: CommittedOffsets) -> int | None:
    commit = offsets.get(*KEY)
    return None if commit is None else commit.offset


def test_a_commit_outlives_the_end_of_an_earlier_transaction() -> None:
    """Both wait; that the one before it ends first is no reason to lose it."""
    offsets = CommittedOffsets()
    offsets.put_pending(1, KEY, a_commit(10))
    offsets.put_pending(2, KEY, a_commit(11))
    offsets.end_transaction(1, committed=True)
    assert held(offsets) == 10
    assert offsets.is_pending(*KEY)
    offsets.end_transaction(2, committed=True)
    assert held(offsets) == 11
    assert not offsets.is_pending(*KEY)


def test_a_commit_loses_against_a_later_one_that_ended_first() -> None:
    offsets = CommittedOffsets()
    offsets.put_pending(1, KEY, a_commit(10))
    offsets.put_pending(2, KEY, a_commit(11))
    offsets.end_transaction(2, committed=True)
    offsets.end_transaction(1, committed=True)
    assert held(offsets) == 11


def test_what_is_last_in_the_log_counts_in_every_order() -> None:
    for events in itertools.product(EVENTS, repeat=5):
        check_history(events)


def check_history(events: tuple[Event, ...]) -> None:
    offsets = CommittedOffsets()
    waiting: dict[int, int] = {}
    # The place in the log of the newest that counts, and whether it is a commit.
    newest, is_commit = -1, False
    for place, (kind, producer_id) in enumerate(events):
        if kind == "plain":
            offsets.put(*KEY, a_commit(place))
            newest, is_commit = place, True
        elif kind == "tombstone":
            offsets.remove(*KEY)
            newest, is_commit = place, False
        elif kind == "in transaction":
            offsets.put_pending(producer_id, KEY, a_commit(place))
            waiting[producer_id] = place
        else:
            offsets.end_transaction(producer_id, committed=kind == "committed")
            ended = waiting.pop(producer_id, -1)
            if kind == "committed" and ended > newest:
                newest, is_commit = ended, True
        assert held(offsets) == (newest if is_commit else None), events
        assert offsets.count == int(is_commit), events
    for producer_id in waiting:
        offsets.end_transaction(producer_id, committed=False)
    assert offsets.pending_keys() == [], events
    assert offsets.has_group(KEY[0]) == is_commit, events
