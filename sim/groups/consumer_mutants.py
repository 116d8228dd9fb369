"""Bugs to plant in consumer groups (KIP-848): each is one line that somebody could get wrong.

They are patches, planted by `mutants`, which undoes them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.coordinator import (
    consumer_group_classic,
    consumer_group_reconciliation,
    consumer_groups,
)
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_group_departure import ConsumerDepartures
from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_group_timeouts import ConsumerTimeouts
from ottla.coordinator.consumer_groups import ConsumerGroups
from ottla.coordinator.shard import NOTHING

Patch = tuple[Any, str, Any]


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _partitions_are_given_out_while_another_has_them() -> Patch:
    return Draft, "is_free", _always(True)


def _nobody_waits_until_a_member_has_given_up() -> Patch:
    return consumer_group_reconciliation, "_owns_any", _always(False)


def _what_is_being_given_up_counts_as_free() -> Patch:
    def holder_of(group: Any, topic_id: Any, partition: int) -> str | None:
        return next(
            (
                member.member_id
                for member in group.members.values()
                if partition in member.current.assigned.get(topic_id, ())
            ),
            None,
        )

    return ConsumerGroup, "holder_of", holder_of


def _what_was_given_up_in_an_old_epoch_is_given_up_now() -> Patch:
    return consumer_groups, "_is_of_its_epoch", _always(True)


def _sessions_never_end() -> Patch:
    return ConsumerTimeouts, "touch", _always(None)


def _whoever_leaves_keeps_its_partitions() -> Patch:
    return ConsumerGroup, "_release", _always(None)


def _departures_make_no_new_epoch() -> Patch:
    real = ConsumerDepartures._removal
    return ConsumerDepartures, "_removal", lambda *arguments: real(*arguments)[:-1]


def _classic_members_are_never_told_to_join_again() -> Patch:
    return consumer_group_classic, "REBALANCE_IN_PROGRESS", 0


def _changes_of_topics_go_unnoticed() -> Patch:
    return ConsumerGroups, "on_image", _always(NOTHING)


def _commits_of_any_epoch_are_accepted() -> Patch:
    return ConsumerGroup, "check_commit", _always(0)


def _commits_of_an_old_epoch_are_accepted() -> Patch:
    return ConsumerGroup, "check_older_commit", _always(0)


def _commits_of_a_replaced_member_are_accepted() -> Patch:
    real = ConsumerGroup.check_commit

    def check(group: Any, member_id: str, instance: str | None, *rest: Any, **options: Any) -> int:
        holder = group.static_members.get(instance)
        return real(group, member_id if holder is None else holder, None, *rest, **options)

    return ConsumerGroup, "check_commit", check


CONSUMER_MUTANTS: dict[str, Callable[[], Patch]] = {
    one.__name__.removeprefix("_"): one
    for one in (
        _partitions_are_given_out_while_another_has_them,
        _nobody_waits_until_a_member_has_given_up,
        _what_is_being_given_up_counts_as_free,
        _what_was_given_up_in_an_old_epoch_is_given_up_now,
        _sessions_never_end,
        _whoever_leaves_keeps_its_partitions,
        _departures_make_no_new_epoch,
        _classic_members_are_never_told_to_join_again,
        _changes_of_topics_go_unnoticed,
        _commits_of_any_epoch_are_accepted,
        _commits_of_an_old_epoch_are_accepted,
        _commits_of_a_replaced_member_are_accepted,
    )
}
