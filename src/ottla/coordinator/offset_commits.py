"""OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, and the ageing of offsets.

Owns what may be committed and read by whom, and when a commit or an empty group is forgotten. The
offsets themselves are in `offsets` and change by replay alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla.coordinator import offsets_records as formats
from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.cluster_view import ClusterView, TopicView
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.group import Group
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.offset_answers import OffsetAnswers
from ottla.coordinator.offsets_records import NO_TIMESTAMP, NO_TOPIC_ID, Commit
from ottla.coordinator.shard import Caller, Fields, Outcome, Record
from ottla.log.log_config import LONG_MAX
from ottla.protocol.error_codes import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
)

TOPIC_IDS_FROM = 10
GROUP_NOT_FOUND_FROM = 9

# So many commits are looked at in one turn of the loop: about 5 ms.
SWEEP_COMMITS_MAX = 10_000

# The codes of a member epoch that is not the newest.
_OTHER_EPOCH = (STALE_MEMBER_EPOCH, ILLEGAL_GENERATION)

_MINUTE_MS = 60_000
_NO_PARTITIONS: Mapping[int, Any] = {}


class OffsetCommits:
    def __init__(self, context: GroupContext, classic: ClassicGroups) -> None:
        self._context = context
        self._classic = classic
        self._to_sweep: list[str] = []

    # -- OffsetCommit -----------------------------------------------------------------------

    def commit(self, request: Any, caller: Caller) -> Outcome[Fields]:
        context = self._context
        group_id = request.group_id
        refusal = self._admit(request, caller.api_version)
        now_ms = context.clock.wall_ms()
        retention_ms = request.retention_time_ms
        expires_ms = NO_TIMESTAMP if retention_ms < 0 else min(now_ms + retention_ms, LONG_MAX)
        metadata_max = context.config.offset_metadata_max_bytes
        records: list[Record] = []
        answers = OffsetAnswers()
        for asked in request.topics:
            topic, there, not_there = _look_up(context.image, asked, caller.api_version, answers)
            if topic is None:
                continue
            partitions = []
            for one in there:
                index = one.partition_index
                metadata = one.committed_metadata or ""
                code = refusal
                if code == NONE and is_too_long(metadata, metadata_max):
                    code = OFFSET_METADATA_TOO_LARGE
                elif code == NONE:
                    commit = Commit(
                        one.committed_offset,
                        one.committed_leader_epoch,
                        metadata,
                        now_ms,
                        expires_ms,
                        topic.topic_id,
                    )
                    records.append(commit_record(group_id, topic.name, index, commit))
                partitions.append(_with_code(one, code))
            answers.add(_key_of(asked), _named(asked), not_there, partitions)
        return Outcome(records, {"topics": answers.topics()})

    def commit_one(self, request: Any, caller: Caller) -> Outcome[int]:
        """The same decision, of one partition without metadata and without a retention of its own;
        told is its error code alone."""
        context = self._context
        group_id = request.group_id
        refusal = self._admit(request, caller.api_version)
        (asked,) = request.topics
        (one,) = asked.partitions
        topic, unknown = _resolve(context.image, asked, caller.api_version)
        index = one.partition_index
        if topic is None or index not in topic.partitions:
            return Outcome((), unknown)
        if refusal != NONE:
            return Outcome((), refusal)
        commit = Commit(
            one.committed_offset,
            one.committed_leader_epoch,
            "",
            context.clock.wall_ms(),
            NO_TIMESTAMP,
            topic.topic_id,
        )
        return Outcome([commit_record(group_id, topic.name, index, commit)], NONE)

    def _admit(self, request: Any, api_version: int) -> int:
        """NONE, or why nothing is committed. Who may commit has been heard of by that."""
        group = self._context.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return NONE
            return GROUP_ID_NOT_FOUND if api_version >= GROUP_NOT_FOUND_FROM else ILLEGAL_GENERATION
        code = group.check_commit(
            request.member_id,
            request.group_instance_id,
            generation,
            api_version,
            transactional=False,
        )
        if code in _OTHER_EPOCH and isinstance(group, ConsumerGroup):
            places = self._places_of(request, api_version)
            return group.check_older_commit(request.member_id, generation, places)
        if code == NONE and isinstance(group, ClassicGroup):
            self._classic.on_commit(group, request.member_id)
        return code

    def _places_of(self, request: Any, api_version: int) -> Iterator[tuple[uuid.UUID, int]]:
        """Ids and partitions of what there is and can be committed."""
        metadata_max = self._context.config.offset_metadata_max_bytes
        for asked in request.topics:
            topic, _ = _resolve(self._context.image, asked, api_version)
            if topic is None:
                continue
            for one in asked.partitions:
                is_long = is_too_long(one.committed_metadata or "", metadata_max)
                if not is_long and one.partition_index in topic.partitions:
                    yield topic.topic_id, one.partition_index

    # -- OffsetFetch ------------------------------------------------------------------------

    def fetch(self, request: Any, caller: Caller, *, require_stable: bool) -> Fields:
        """`request` is one group of the request; `topics` None asks for everything there is."""
        group = self._context.groups.get(request.group_id)
        code = NONE if group is None else group.check_fetch(request.member_id, request.member_epoch)
        if code != NONE:
            return {"group_id": request.group_id, "error_code": code, "topics": []}
        if request.topics is None:
            topics = self._fetch_all(request.group_id, require_stable, caller.api_version)
        else:
            topics = [
                self._fetch_topic(request.group_id, asked, require_stable, caller.api_version)
                for asked in request.topics
            ]
            if caller.api_version >= TOPIC_IDS_FROM:
                # Kafka looks first which ids it knows: those that it does not come last.
                topics.sort(key=lambda topic: not topic["name"])
        return {"group_id": request.group_id, "error_code": NONE, "topics": topics}

    def _fetch_all(self, group_id: str, require_stable: bool, api_version: int) -> list[Fields]:
        topics = []
        image = self._context.image
        for name, commits in self._context.offsets.of_group(group_id).items():
            topic = image.topics.get(name)
            if topic is None and api_version >= TOPIC_IDS_FROM:
                continue  # it cannot be named by an id any more
            topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
            partitions = [
                self._fetched(group_id, name, index, commit, require_stable)
                for index, commit in commits.items()
            ]
            topics.append({"name": name, "topic_id": topic_id, "partitions": partitions})
        return topics

    def _fetch_topic(
        self, group_id: str, asked: Any, require_stable: bool, api_version: int
    ) -> Fields:
        name, topic_id = asked.name, NO_TOPIC_ID
        if api_version >= TOPIC_IDS_FROM:
            topic_id = asked.topic_id
            name = self._context.image.topic_names_by_id.get(topic_id)
        if name is None:
            partitions = [_not_committed(one, UNKNOWN_TOPIC_ID) for one in asked.partition_indexes]
            return {"name": "", "topic_id": topic_id, "partitions": partitions}
        commits = self._context.offsets.of_group(group_id).get(name, {})
        partitions = []
        for index in asked.partition_indexes:
            commit = commits.get(index)
            if commit is not None and _is_of_another(commit.topic_id, topic_id):
                commit = None
            partitions.append(self._fetched(group_id, name, index, commit, require_stable))
        return {"name": name, "topic_id": topic_id, "partitions": partitions}

    def _fetched(
        self, group_id: str, topic: str, index: int, commit: Commit | None, require_stable: bool
    ) -> Fields:
        if require_stable and self._context.offsets.is_pending(group_id, topic, index):
            return _not_committed(index, UNSTABLE_OFFSET_COMMIT)
        if commit is None:
            return _not_committed(index, NONE)
        return {
            "partition_index": index,
            "committed_offset": commit.offset,
            "committed_leader_epoch": commit.leader_epoch,
            "metadata": commit.metadata,
            "error_code": NONE,
        }

    # -- deletion ---------------------------------------------------------------------------

    def delete_offsets(self, request: Any) -> Outcome[Fields]:
        group_id = request.group_id
        group = self._context.groups.get(group_id)
        code = GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if group is None or code != NONE:
            return Outcome((), {"error_code": code, "topics": []})
        records: list[Record] = []
        answers = OffsetAnswers()
        for asked in request.topics:
            image = self._context.image.topics.get(asked.name)
            known = _NO_PARTITIONS if image is None else image.partitions
            is_in_use = group.is_subscribed_to(asked.name)
            unknown, decided = [], []
            for one in asked.partitions:
                index = one.partition_index
                if index not in known:
                    unknown.append(_with_code(one, UNKNOWN_TOPIC_OR_PARTITION))
                    continue
                if not is_in_use and self._is_held(group_id, asked.name, index):
                    records.append(tombstone(group_id, asked.name, index))
                decided.append(_with_code(one, GROUP_SUBSCRIBED_TO_TOPIC if is_in_use else NONE))
            if image is None:
                answers.add_unknown(asked.name, {"name": asked.name}, unknown)
            else:
                answers.add(asked.name, {"name": asked.name}, unknown, decided)
        return Outcome(records, {"error_code": NONE, "topics": answers.topics()})

    def _is_held(self, group_id: str, topic: str, index: int) -> bool:
        offsets = self._context.offsets
        if offsets.is_pending(group_id, topic, index):
            return True
        return offsets.get(group_id, topic, index) is not None

    def delete_groups(self, group_ids: Sequence[str]) -> Outcome[list[Fields]]:
        records: list[Record] = []
        results = []
        for group_id in dict.fromkeys(group_ids):
            group = self._context.groups.get(group_id)
            code = GROUP_ID_NOT_FOUND if group is None else group.check_delete()
            if group is not None and code == NONE:
                records += self._all_tombstones(group)
            results.append({"group_id": group_id, "error_code": code})
        return Outcome(records, results, is_atomic=False)

    def _all_tombstones(self, group: Group) -> list[Record]:
        group_id = group.group_id
        held = self._context.offsets.of_group(group_id)
        keys = {(group_id, topic, index) for topic, commits in held.items() for index in commits}
        keys.update(self._context.offsets.pending_of(group_id))
        # The group's own record comes last: halfway through, there is still a group to delete.
        return [*(tombstone(*key) for key in sorted(keys)), *group.tombstones()]

    def forget_topics(self, is_gone: Iterable[str]) -> list[Record]:
        """Nobody can read on where these topics were. Who was told late may have commits of topics
        that have come in their place: those stay."""
        gone = set(is_gone)
        keys = [
            (group_id, topic, index)
            for group_id, topics in self._context.offsets.by_group.items()
            for topic in gone & topics.keys()
            for index, commit in topics[topic].items()
            if not self._is_of_present(topic, commit)
        ]
        keys += (key for key in self._context.offsets.pending_keys() if key[1] in gone)
        return [tombstone(*key) for key in dict.fromkeys(keys)]

    def _is_of_present(self, topic: str, commit: Commit) -> bool:
        """Whether a commit is of the topic that has this name now."""
        present = self._context.image.topics.get(topic)
        return present is not None and present.topic_id == commit.topic_id

    # -- ageing -----------------------------------------------------------------------------

    def sweep(self) -> Outcome[bool]:
        """Forgets what is too old, some groups at a time; True if there are more to look at."""
        context = self._context
        if not self._to_sweep:
            self._to_sweep = list(context.groups)
        now_ms = context.clock.wall_ms()
        records: list[Record] = []
        looked = 0
        while self._to_sweep and looked < SWEEP_COMMITS_MAX:
            group = context.groups.get(self._to_sweep.pop())
            if group is None:
                continue
            held = context.offsets.of_group(group.group_id)
            looked += 1 + sum(map(len, held.values()))
            expired = self._expired(group, held, now_ms)
            records += (tombstone(group.group_id, topic, index) for topic, index in expired)
            is_bare = len(expired) == sum(map(len, held.values()))
            if is_bare and group.may_vanish() and not context.offsets.pending_of(group.group_id):
                if isinstance(group, ClassicGroup) and group.is_hollow() and not held:
                    del context.groups[group.group_id]  # the log says nothing of it
                else:
                    records += group.tombstones()
        return Outcome(records, bool(self._to_sweep), is_atomic=False)

    def _expired(
        self, group: Group, held: Mapping[str, Mapping[int, Commit]], now_ms: int
    ) -> list[tuple[str, int]]:
        retention_ms = self._context.config.offsets_retention_minutes * _MINUTE_MS
        offsets = self._context.offsets
        expired = []
        for topic, commits in held.items():
            if group.is_subscribed_to(topic):
                continue
            for index, commit in commits.items():
                starts_ms = group.expiry_starts_ms(commit.committed_ms)
                if starts_ms is None:
                    return []
                ends_ms = commit.expires_ms
                if ends_ms == NO_TIMESTAMP:
                    ends_ms = starts_ms + retention_ms
                if now_ms >= ends_ms and not offsets.is_pending(group.group_id, topic, index):
                    expired.append((topic, index))
        return expired


def is_too_long(metadata: str, most: int) -> bool:
    """Kafka counts as Java does: a letter beyond the first 65,536 is two."""
    count = len(metadata)
    if count > most or 2 * count <= most:
        return count > most
    return len(metadata.encode("utf-16-le")) > 2 * most


def commit_record(group_id: str, topic: str, partition: int, commit: Commit) -> Record:
    return Record(
        formats.offset_key(group_id, topic, partition),
        formats.offset_value(commit),
        (group_id, topic, partition, commit),
    )


def tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(
        formats.offset_key(group_id, topic, partition), None, (group_id, topic, partition, None)
    )


def refused_commit(image: ClusterView, request: Any, api_version: int, code: int) -> Fields:
    """Every partition gets `code`, but for those that there are not."""
    answers = OffsetAnswers()
    for asked in request.topics:
        topic, there, not_there = _look_up(image, asked, api_version, answers)
        if topic is not None:
            refused = [_with_code(one, code) for one in there]
            answers.add(_key_of(asked), _named(asked), not_there, refused)
    return {"topics": answers.topics()}


def _look_up(
    image: ClusterView, asked: Any, api_version: int, answers: OffsetAnswers
) -> tuple[TopicView | None, list[Any], list[Fields]]:
    """A topic of a commit, those of its partitions that are there, and the answer for the others.
    Of a topic that is not there all is told already."""
    topic, unknown = _resolve(image, asked, api_version)
    if topic is None:
        refused = [_with_code(one, unknown) for one in asked.partitions]
        answers.add_unknown(_key_of(asked), _named(asked), refused)
        return None, [], []
    known = topic.partitions
    there = [one for one in asked.partitions if one.partition_index in known]
    if len(there) == len(asked.partitions):
        return topic, there, []
    refused = [
        _with_code(one, unknown) for one in asked.partitions if one.partition_index not in known
    ]
    return topic, there, refused


def _key_of(asked: Any) -> tuple[str, uuid.UUID]:
    return asked.name, asked.topic_id


def _named(asked: Any) -> Fields:
    return {"name": asked.name, "topic_id": asked.topic_id}


def _with_code(one: Any, code: int) -> Fields:
    return {"partition_index": one.partition_index, "error_code": code}


def _resolve(image: ClusterView, asked: Any, api_version: int) -> tuple[TopicView | None, int]:
    """The topic, and the error code for what it does not have."""
    if api_version < TOPIC_IDS_FROM:
        return image.topics.get(asked.name), UNKNOWN_TOPIC_OR_PARTITION
    name = image.topic_names_by_id.get(asked.topic_id)
    if name is None:
        return None, UNKNOWN_TOPIC_ID
    return image.topics.get(name), UNKNOWN_TOPIC_OR_PARTITION


def _is_of_another(held: uuid.UUID, asked: uuid.UUID) -> bool:
    """Whether a commit is of a topic that had the same name before."""
    return held != asked and NO_TOPIC_ID not in (held, asked)


def _not_committed(index: int, code: int) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }
