"""The controller's decisions about topics: create, delete, more partitions.

Each decision looks at one image and answers for every item on its own; one bad item spoils no
other. Nothing here writes: what is to be written goes out as versioned writes.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths, placement, topic_names
from ottla.metadata.assignment import check_replicas, first_state, moving_of, refused, topic_write
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.store import ABSENT, Check, Operation, Write
from ottla.protocol.error_codes import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    message_of,
)

BROKER_DEFAULT = -1
"""As a count of partitions or replicas: what the broker's settings say."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""As Kafka's controller: more would make one change of the metadata last too long."""

NO_TOPIC_ID = uuid.UUID(int=0)

CheckConfigs = Callable[[Mapping[str, str]], None]
"""Raises ProtocolError for settings that no topic may have."""


class NewTopic(NamedTuple):
    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class TopicDefaults(NamedTuple):
    partition_count: int = 1
    replication_factor: int = 1


@dataclass(slots=True)
class CreateResult:
    name: str
    error_code: int = NONE
    error_message: str | None = None
    topic_id: uuid.UUID = NO_TOPIC_ID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Planned:
    topic_id: uuid.UUID
    replicas: list[tuple[int, ...]]
    configs: dict[str, str]


def decide_create_topics(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    *,
    defaults: TopicDefaults,
    check_configs: CheckConfigs,
    new_uuid: Callable[[], uuid.UUID],
    validate_only: bool = False,
) -> Decision[list[CreateResult]]:
    """One result per name: a name that is asked for twice is refused once."""
    counts = Counter(topic.name for topic in topics)
    singles = [topic for topic in topics if counts[topic.name] == 1]
    if _partitions_asked_for(singles, defaults) > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        return Decision([], [CreateResult(name, POLICY_VIOLATION, message) for name in counts])
    accepted: set[str] = set()
    results = [
        CreateResult(name, INVALID_REQUEST, "Duplicate topic name.")
        for name, times in counts.items()
        if times > 1
    ]
    writes: list[Write] = []
    for topic in singles:
        try:
            _check_name(image, topic.name, accepted)
            planned = _plan(image, topic, defaults, check_configs, new_uuid)
        except ProtocolError as error:
            results.append(CreateResult(topic.name, error.code, error.message))
            continue
        accepted.add(topic.name)
        results.append(_created(topic.name, planned))
        writes += _topic_writes(image, topic.name, planned)
    return decided(image, [] if validate_only else writes, results)


def _partitions_asked_for(topics: Iterable[NewTopic], defaults: TopicDefaults) -> int:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.partition_count == BROKER_DEFAULT:
            total += defaults.partition_count
        else:
            total += max(topic.partition_count, 0)
    return total


def _check_name(image: MetadataImage, name: str, accepted: set[str]) -> None:
    topic_names.validate(name)
    if name == topic_names.CLUSTER_METADATA:
        message = f"Creation of internal topic {name} is prohibited."
        raise ProtocolError(INVALID_REQUEST, message)
    if name in image.topics:
        raise ProtocolError(TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    topic_names.check_collision(name, image.topics)
    topic_names.check_collision(name, accepted)


def _plan(
    image: MetadataImage,
    topic: NewTopic,
    defaults: TopicDefaults,
    check_configs: CheckConfigs,
    new_uuid: Callable[[], uuid.UUID],
) -> _Planned:
    without_value = [name for name, value in topic.configs if value is None]
    if without_value:
        message = "Null value not supported for topic configs: " + ",".join(without_value)
        raise ProtocolError(INVALID_CONFIG, message)
    configs = {name: value for name, value in topic.configs if value is not None}
    check_configs(configs)
    topic_id = new_uuid()
    if topic.assignments:
        replicas = _manual_replicas(image, topic)
    else:
        replicas = _automatic_replicas(image, topic, defaults, topic_id)
    return _Planned(topic_id, replicas, configs)


def _manual_replicas(image: MetadataImage, topic: NewTopic) -> list[tuple[int, ...]]:
    for asked, what in (
        (topic.replication_factor, "replication factor"),
        (topic.partition_count, "numPartitions"),
    ):
        if asked != BROKER_DEFAULT:
            message = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise ProtocolError(INVALID_REQUEST, message)
    by_index: dict[int, tuple[int, ...]] = {}
    replication_factor = None
    for index, replicas in topic.assignments:
        if index in by_index:
            raise refused(f"Found multiple manual partition assignments for partition {index}")
        check_replicas(image, replicas, replication_factor)
        first_state(image, index, replicas)
        replication_factor = len(replicas)
        by_index[index] = tuple(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        raise refused("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _automatic_replicas(
    image: MetadataImage, topic: NewTopic, defaults: TopicDefaults, topic_id: uuid.UUID
) -> list[tuple[int, ...]]:
    factor, count = topic.replication_factor, topic.partition_count
    if factor < BROKER_DEFAULT or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ProtocolError(INVALID_REPLICATION_FACTOR, message)
    if count < BROKER_DEFAULT or count == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise ProtocolError(INVALID_PARTITIONS, message)
    if factor == BROKER_DEFAULT:
        factor = defaults.replication_factor
    if count == BROKER_DEFAULT:
        count = defaults.partition_count
    # The id is random already: no other source of chance is needed to spread the leaders.
    return placement.place(image.brokers.values(), factor, count, placement.Seed.of(topic_id.int))


def _created(name: str, planned: _Planned) -> CreateResult:
    return CreateResult(
        name,
        topic_id=planned.topic_id,
        partition_count=len(planned.replicas),
        replication_factor=len(planned.replicas[0]),
        configs=planned.configs,
    )


def _topic_writes(image: MetadataImage, name: str, planned: _Planned) -> list[Write]:
    replicas = dict(enumerate(planned.replicas))
    content = nodes.topic(planned.topic_id, replicas, {}, {})
    writes = [Write(paths.topic(name), content, ABSENT)]
    if planned.configs:
        writes.append(Write(paths.topic_configs(name), nodes.configs(planned.configs), ABSENT))
    writes += _state_writes(image, name, replicas)
    return writes


def _state_writes(
    image: MetadataImage, name: str, replicas: Mapping[int, Sequence[int]]
) -> list[Write]:
    return [
        Write(
            paths.partition_state(name, index),
            nodes.partition_state(image.controller_epoch, first_state(image, index, ids)),
            ABSENT,
        )
        for index, ids in replicas.items()
    ]


class TopicSelection(NamedTuple):
    """A topic to delete, by name or by id; the other is None or the zero id."""

    name: str | None = None
    topic_id: uuid.UUID = NO_TOPIC_ID

    def is_one_of_both(self) -> bool:
        return (self.name is None) != (self.topic_id == NO_TOPIC_ID)


@dataclass(slots=True)
class DeleteResult:
    name: str | None
    topic_id: uuid.UUID
    error_code: int = NONE
    error_message: str | None = None


def decide_delete_topics(
    image: MetadataImage, selections: Sequence[TopicSelection]
) -> Decision[list[DeleteResult]]:
    """One result per topic: one that is named twice, in whatever way, is refused once."""
    results = []
    writes: list[Operation] = []
    times_found: Counter[str] = Counter()
    for selection, times in Counter(selections).items():
        try:
            times_found[_select(image, selection, times).name] += 1
        except ProtocolError as error:
            results.append(
                DeleteResult(selection.name, selection.topic_id, error.code, error.message)
            )
    for name, times in times_found.items():
        topic = image.topics[name]
        result = DeleteResult(name, topic.topic_id)
        results.append(result)
        if times > 1:
            result.error_code = INVALID_REQUEST
            result.error_message = "The provided topic name maps to an ID already supplied."
        else:
            writes += _deletion_writes(topic)
    if writes:
        # States are written on versions, and those of a topic made anew begin again.
        version = image.version_of(paths.TOPIC_DELETIONS)
        writes.append(Write(paths.TOPIC_DELETIONS, b"{}", version))
    return decided(image, writes, results)


def _deletion_writes(topic: TopicImage) -> list[Operation]:
    """The topic's version guards the rest: who changes a partition later finds no node."""
    writes: list[Operation] = [
        Write(paths.partition_state(topic.name, index), None, None) for index in topic.partitions
    ]
    configs = paths.topic_configs(topic.name)
    if topic.configs_version == ABSENT:
        # Settings that somebody else is just making would stay behind, of a topic that is not.
        writes.append(Check(configs, ABSENT))
    else:
        writes.append(Write(configs, None, topic.configs_version))
    return [*writes, Write(paths.topic(topic.name), None, topic.version)]


def _select(image: MetadataImage, selection: TopicSelection, times: int) -> TopicImage:
    by_id = selection.topic_id != NO_TOPIC_ID
    if selection.name is None and not by_id:
        raise ProtocolError(INVALID_REQUEST, "Neither topic name nor id were specified.")
    if selection.name is not None and by_id:
        raise ProtocolError(INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times > 1:
        raise ProtocolError(INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}.")
    if by_id:
        topic, missing = image.topic_by_id(selection.topic_id), UNKNOWN_TOPIC_ID
    else:
        topic, missing = image.topics.get(selection.name or ""), UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise ProtocolError(missing, message_of(missing))
    return topic


class MorePartitions(NamedTuple):
    """`partition_count` is that of all; `assignments` are those of the new ones, or None."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(slots=True)
class NamedResult:
    name: str
    error_code: int = NONE
    error_message: str | None = None


def decide_create_partitions(
    image: MetadataImage, topics: Sequence[MorePartitions], *, validate_only: bool = False
) -> Decision[list[NamedResult]]:
    counts = Counter(topic.name for topic in topics)
    results = [
        NamedResult(name, INVALID_REQUEST, "Duplicate topic name.")
        for name, times in counts.items()
        if times > 1
    ]
    writes: list[Write] = []
    for wanted in topics:
        if counts[wanted.name] > 1:
            continue
        topic = image.topics.get(wanted.name)
        if topic is None:
            results.append(NamedResult(wanted.name, UNKNOWN_TOPIC_OR_PARTITION))
            continue
        try:
            writes += _more_partitions(image, topic, wanted)
        except ProtocolError as error:
            results.append(NamedResult(wanted.name, error.code, error.message))
        else:
            results.append(NamedResult(wanted.name))
    return decided(image, [] if validate_only else writes, results)


def _more_partitions(
    image: MetadataImage, topic: TopicImage, wanted: MorePartitions
) -> list[Write]:
    present = len(topic.partitions)
    additional = wanted.partition_count - present
    _check_increase(topic.name, present, wanted.partition_count)
    # While a reassignment is under way the lists are longer than they will be.
    factor = len(topic.partitions[0].target_replicas())
    if wanted.assignments is None:
        brokers = image.brokers.values()
        seed = placement.seed_to_continue(brokers, topic.partitions[0].replicas[0])
        added = placement.place(brokers, factor, additional, seed, first_partition=present)
    else:
        _check_assignment_count(additional, len(wanted.assignments))
        added = [tuple(replicas) for replicas in wanted.assignments]
        for replicas in added:
            check_replicas(image, replicas, factor)
    new = {present + index: replicas for index, replicas in enumerate(added)}
    replicas_of_all = {index: state.replicas for index, state in topic.partitions.items()} | new
    return [
        topic_write(topic, replicas_of_all, moving_of(topic)),
        *_state_writes(image, topic.name, new),
    ]


def _check_increase(name: str, present: int, wanted: int) -> None:
    if wanted == present:
        message = f"Topic already has {present} partition(s)."
        raise ProtocolError(INVALID_PARTITIONS, message)
    if wanted < present:
        message = (
            f"The topic {name} currently has {present} partition(s); "
            f"{wanted} would not be an increase."
        )
        raise ProtocolError(INVALID_PARTITIONS, message)
    if wanted - present > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        raise ProtocolError(POLICY_VIOLATION, message)


def _check_assignment_count(additional: int, given: int) -> None:
    if given != additional:
        raise refused(
            f"Attempted to add {additional} additional partition(s), "
            f"but only {given} assignment(s) were specified."
        )
