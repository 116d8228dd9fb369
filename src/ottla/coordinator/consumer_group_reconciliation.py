"""How a member gets from what it has to what it is to have, one heartbeat at a time (KIP-848).

It gives up first: until it says that it no longer owns what it has to give up, it stays in its
epoch. Then it moves to the epoch of its target and gets what nobody else holds; for the rest it
waits. Nothing here changes a state: what comes out is the member's next record.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ottla.coordinator.consumer_records import (
    NO_EPOCHS,
    STABLE,
    UNRELEASED,
    UNREVOKED,
    CurrentAssignment,
    Epochs,
    Partitions,
)

Owned = Mapping[uuid.UUID, Collection[int]] | None
"""What a member says it owns; None if it says nothing of that."""


class Goal(NamedTuple):
    """`topic_ids` are those that the member subscribes to now: the target may be older.

    `is_free` tells whether nobody but the member itself holds a partition. `has_new_subscription`:
    its request has changed what it subscribes to.
    """

    epoch: int
    target: Partitions
    topic_ids: Collection[uuid.UUID]
    is_free: Callable[[uuid.UUID, int], bool]
    has_new_subscription: bool


def reconcile(current: CurrentAssignment, goal: Goal, owned: Owned) -> CurrentAssignment:
    if current.state == UNREVOKED and _owns_any(owned, current.revoking):
        return _drop_unsubscribed(current, goal, owned) if goal.has_new_subscription else current
    if current.state == STABLE and current.member_epoch == goal.epoch:
        return _drop_unsubscribed(current, goal, owned) if goal.has_new_subscription else current
    return _advance(current, goal, owned)


def _owns_any(owned: Owned, partitions: Epochs) -> bool:
    """Who does not say what it owns may own anything."""
    if owned is None:
        return True
    return any(
        partition in partitions.get(topic_id, ())
        for topic_id, held in owned.items()
        for partition in held
    )


def _drop_unsubscribed(current: CurrentAssignment, goal: Goal, owned: Owned) -> CurrentAssignment:
    """What it no longer subscribes to it has to give up now, whatever its target says."""
    dropped = {
        topic_id: epochs
        for topic_id, epochs in current.assigned.items()
        if topic_id not in goal.topic_ids
    }
    if not dropped:
        return current
    assigned = {
        topic_id: epochs
        for topic_id, epochs in current.assigned.items()
        if topic_id in goal.topic_ids
    }
    revoking = dict(current.revoking)
    for topic_id, epochs in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    epoch = current.member_epoch
    if _owns_any(owned, revoking):
        return CurrentAssignment(epoch, epoch, UNREVOKED, assigned, revoking)
    return CurrentAssignment(epoch, epoch, current.state, assigned, current.revoking)


def _advance(current: CurrentAssignment, goal: Goal, owned: Owned) -> CurrentAssignment:
    assigned: dict[uuid.UUID, dict[int, int]] = {}
    revoking: dict[uuid.UUID, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        target = _wanted(goal, topic_id)
        for partition, since in epochs.items():
            side = assigned if partition in target else revoking
            side.setdefault(topic_id, {})[partition] = since
    if revoking and _owns_any(owned, revoking):
        epoch = current.member_epoch
        return CurrentAssignment(epoch, epoch, UNREVOKED, assigned, revoking)
    is_waiting = False
    for topic_id in goal.target:
        for partition in _wanted(goal, topic_id):
            if partition in assigned.get(topic_id, ()):
                continue
            if goal.is_free(topic_id, partition):
                assigned.setdefault(topic_id, {})[partition] = goal.epoch
            else:
                is_waiting = True
    state = UNRELEASED if is_waiting else STABLE
    return CurrentAssignment(goal.epoch, current.member_epoch, state, assigned, NO_EPOCHS)


def _wanted(goal: Goal, topic_id: uuid.UUID) -> Collection[int]:
    return goal.target.get(topic_id, ()) if topic_id in goal.topic_ids else ()
