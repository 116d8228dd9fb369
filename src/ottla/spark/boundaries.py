"""From where a query may start or end to an offset of every partition.

Asks the cluster through its view and nothing else. A partition that the user forgot, a time after
the last record and a group without a commit are answered by name.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.base.ids import TopicPartition
from ottla.spark.cluster_view import ClusterView
from ottla.spark.errors import OptionError
from ottla.spark.offsets import ByPartition
from ottla.spark.option_values import EARLIEST, LATEST
from ottla.spark.source_options import Boundary

NAMED_MAX = 10  # partitions in a message


def resolve(
    boundary: Boundary,
    partitions: Collection[TopicPartition],
    view: ClusterView,
    *,
    group_id: str = "",
    option: str = "startingOffsets",
) -> ByPartition:
    """An offset of each of the partitions."""
    if boundary.kind == "earliest":
        return view.offsets(dict.fromkeys(partitions, EARLIEST))
    if boundary.kind == "latest":
        return view.offsets(dict.fromkeys(partitions, LATEST))
    if boundary.kind == "group":
        return _of_group(group_id, partitions, view)
    if boundary.kind == "offsets":
        return _given(boundary, partitions, view, option)
    return _of_times(boundary, partitions, view, option)


def _given(
    boundary: Boundary, partitions: Collection[TopicPartition], view: ClusterView, option: str
) -> ByPartition:
    found = _flat(boundary)
    _must_match(option, found, partitions)
    named = {place: offset for place, offset in found.items() if offset in (EARLIEST, LATEST)}
    return {**found, **(view.offsets(named) if named else {})}


def _of_times(
    boundary: Boundary, partitions: Collection[TopicPartition], view: ClusterView, option: str
) -> ByPartition:
    if boundary.timestamp_ms is not None:
        moments = dict.fromkeys(partitions, boundary.timestamp_ms)
    else:
        moments = _flat(boundary)
        _must_match(f"{option}ByTimestamp", moments, partitions, hint="")
    found = view.offsets(moments)
    missing = [place for place in partitions if place not in found]
    if missing and boundary.after_last == "error":
        topic, partition = missing[0]
        raise OptionError(
            f"{topic}-{partition} has no record at or after {moments[missing[0]]} ms: choose an "
            "earlier time, or startingOffsetsByTimestampStrategy=latest"
        )
    return {**found, **(view.offsets(dict.fromkeys(missing, LATEST)) if missing else {})}


def _of_group(
    group_id: str, partitions: Collection[TopicPartition], view: ClusterView
) -> ByPartition:
    """Partitions that the group has never committed begin with their first record."""
    committed = view.committed(group_id, list(partitions))
    if not committed:
        raise OptionError(
            f"group {group_id} has committed no offset of these topics: choose startingOffsets="
            "earliest or latest for the first run"
        )
    found = {place: one.offset for place, one in committed.items()}
    rest = [place for place in partitions if place not in found]
    return {**found, **(view.offsets(dict.fromkeys(rest, EARLIEST)) if rest else {})}


def _flat(boundary: Boundary) -> ByPartition:
    return {
        (topic, partition): number
        for topic, numbers in boundary.offsets.items()
        for partition, number in numbers.items()
    }


def _must_match(
    option: str,
    given: Collection[TopicPartition],
    partitions: Collection[TopicPartition],
    hint: str = " (-2 is earliest, -1 is latest)",
) -> None:
    missing = sorted(set(partitions) - set(given))
    if missing:
        raise OptionError(
            f"option {option} must name every partition; missing: {listed(missing)}{hint}"
        )
    extra = sorted(set(given) - set(partitions))
    if extra:
        raise OptionError(f"option {option} names what is not subscribed to: {listed(extra)}")


def listed(partitions: Collection[TopicPartition]) -> str:
    some = [f"{topic}-{partition}" for topic, partition in sorted(partitions)[:NAMED_MAX]]
    more = len(partitions) - len(some)
    return ", ".join(some) + (f" and {more} more" if more > 0 else "")
