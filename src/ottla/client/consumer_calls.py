"""What the plain and the asyncio consumer share: reading arguments, records not yet iterated over,
and the parts of calls that need no waiting.

`poll` hands out lists, iteration single records of such a list. Records of the list that have not
been iterated over yet are *unread*: they are polled next, and positions and commits are those
before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ConfigError
from ottla.base.ids import TopicPartition
from ottla.client.clock import monotonic_ms
from ottla.client.cluster import check_topic_name
from ottla.client.consumer_machine import ConsumerMachine
from ottla.client.consumer_offsets import NOT_FOUND, ListedOffset
from ottla.client.consumer_partitions import EARLIEST, LATEST
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_records import Deserializers, Record
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata, as_long, as_offsets

Partitions = TopicPartition | Iterable[TopicPartition]
OffsetsToCommit = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | Record | Sequence[Record] | None
)


def what_to_subscribe(
    topics: str | Iterable[str] | re.Pattern[str], pattern: str | None, settings: ConsumerSettings
) -> tuple[list[str], re.Pattern[str] | None, str | None]:
    """Names, an expression to match here, a pattern for the broker to match."""
    if isinstance(topics, re.Pattern):
        names, expression = [], topics
    else:
        names, expression = [topics] if isinstance(topics, str) else list(topics), None
        for name in names:
            check_topic_name(name)
    if (bool(names) + (expression is not None) + (pattern is not None)) != 1:
        raise ConfigError("subscribe to names of topics, or to one regular expression")
    if pattern is None:
        return names, expression, None
    if settings.group_protocol == "consumer":
        return [], None, pattern
    try:
        return [], re.compile(pattern), None
    except re.error as cause:
        raise ConfigError(f"{pattern!r} is no regular expression: {cause}") from cause


class ConsumerCalls:
    def __init__(self, machine: ConsumerMachine) -> None:
        self._machine = machine
        self._settings = machine.settings
        self._deserializers = Deserializers(
            machine.settings.key_deserializer, machine.settings.value_deserializer
        )
        self._unread: list[Record] = []
        self._unread_at = 0
        self._is_closed = False

    def subscription(self) -> frozenset[str]:
        return frozenset(self._machine.topics_to_read())

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._machine.subscription.partitions)

    def paused(self) -> frozenset[TopicPartition]:
        states = self._machine.subscription.partitions
        return frozenset(key for key, state in states.items() if state.paused)

    @property
    def settings(self) -> ConsumerSettings:
        return self._settings

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, or was when it was last in it, for a producer's
        `send_offsets`: what it sends after others have got its partitions is refused."""
        self._machine.require_group()
        identity = self._machine.last_identity
        return GroupMetadata(
            self._settings.group_id or "",
            identity.generation,
            identity.member_id,
            identity.instance_id,
        )

    # ------------------------------------------------------------------------------- arguments

    def _deadline_ms(self, timeout_s: float | None) -> float:
        timeout_ms = self._settings.default_api_timeout_ms if timeout_s is None else timeout_s * 1e3
        return monotonic_ms() + timeout_ms

    def _count_max(self, max_records: int | None) -> int:
        count_max = self._settings.max_poll_records if max_records is None else max_records
        if count_max < 1:
            raise ValueError(f"max_records={count_max}: at least 1 is needed")
        return count_max

    def _keys(self, partitions: Partitions) -> list[TopicPartition]:
        match partitions:
            case (_, int()):
                given: Iterable[Any] = [partitions]  # one alone
            case Iterable():
                given = partitions
            case _:
                raise TypeError(f"{partitions!r} is no topic and partition, nor several")
        keys = []
        for one in given:
            match one:
                case (str(topic), int(partition)) if partition >= 0:
                    keys.append((topic, partition))
                case _:
                    raise ValueError(f'{one!r} is no topic and partition, as ("orders", 0) is')
        return keys

    def _assigned_or(self, partitions: Partitions | None) -> list[TopicPartition]:
        if partitions is None:
            return list(self._machine.subscription.partitions)
        return self._keys(partitions)

    # ----------------------------------------------------------------------------- unread records

    def _has_unread(self) -> bool:
        return self._unread_at < len(self._unread)

    def _take_unread(self, count_max: int) -> list[Record]:
        """The next of them. An iteration that goes on sees by the new list that it has to look."""
        if not self._has_unread():
            return []
        end = self._unread_at + count_max
        taken, self._unread = self._unread[self._unread_at : end], self._unread[end:]
        self._unread_at = 0
        return taken

    def _drop_unread(self, keys: Iterable[TopicPartition]) -> None:
        """Of these partitions: their positions have been set anew."""
        left = self._unread[self._unread_at :]
        gone = set(keys)
        self._unread = [one for one in left if (one.topic, one.partition) not in gone]
        self._unread_at = 0

    def _give_back_unread(self) -> None:
        """Whoever asks for something else than the next record goes on from where the iteration
        stopped: what it did not reach is fetched again."""
        firsts = self._first_unread()
        self._unread, self._unread_at = [], 0
        for key, record in firsts.items():
            state = self._machine.subscription.partitions.get(key)
            if state is not None and state.position is not None:
                state.seek(record.offset, state.position_epoch)
                self._machine.fetcher.touch()

    def _give_back_rows(self, began: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Nobody has got these: they are fetched again."""
        for key, (offset, epoch) in began.items():
            state = self._machine.subscription.partitions.get(key)
            if state is not None and state.position is not None:
                state.seek(offset, epoch)
        self._machine.fetcher.touch()

    def _first_unread(self) -> dict[TopicPartition, Record]:
        firsts: dict[TopicPartition, Record] = {}
        for record in self._unread[self._unread_at :]:
            firsts.setdefault((record.topic, record.partition), record)
        return firsts

    # -------------------------------------------------------------------------------- commits

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind what has been handed out, record by record where it is iterated over."""
        offsets = self._machine.consumed()
        for key, record in self._first_unread().items():
            if key in offsets:
                offsets[key] = OffsetAndMetadata(record.offset)
        return offsets

    def _offsets_to_commit(self, given: OffsetsToCommit) -> dict[TopicPartition, OffsetAndMetadata]:
        if given is None:
            return self._consumed()
        if isinstance(given, Mapping):
            return as_offsets(given)
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        records: Sequence[Record] = [given] if isinstance(given, Record) else given
        for record in records:
            if not isinstance(record, Record):
                raise TypeError(f"a commit is of records or of a dict of offsets, not {record!r}")
            behind = OffsetAndMetadata(record.offset + 1, record.leader_epoch)
            key = (record.topic, record.partition)
            if key not in offsets or offsets[key].offset < behind.offset:
                offsets[key] = behind
        return offsets

    # ------------------------------------------------------------------------------ positions

    def _seek(self, key: TopicPartition, offset: int) -> None:
        where = as_long(offset, f"offset of {key[0]}-{key[1]}")
        self._machine.state_of(key).seek(where)
        self._machine.fetcher.touch()

    def _reset(self, keys: Iterable[TopicPartition], end: int) -> None:
        """All of them, or none where one is not assigned."""
        for state in [self._machine.state_of(key) for key in keys]:
            state.reset(end)

    def _set_paused(self, partitions: Partitions, paused: bool) -> None:
        for state in [self._machine.state_of(key) for key in self._keys(partitions)]:
            state.paused = paused
        self._machine.fetcher.touch()
        self._machine.notify()

    async def _position(self, key: TopicPartition, deadline_ms: float) -> int:
        core = self._machine.core
        state = self._machine.state_of(key)
        self._machine.positions.ask_again()
        while state.position is None:
            self._machine.raise_reported()
            error = self._machine.positions.error_of(state)
            if error is not None:
                raise error
            if core.now_ms >= deadline_ms:
                raise core.timed_out(f"position of {key[0]}-{key[1]}")
            await core.sleep_until(min(core.now_ms + 10, deadline_ms))
        return state.position

    async def _earliest(
        self, partitions: Partitions, deadline_ms: float
    ) -> dict[TopicPartition, int]:
        return await self._ends(partitions, EARLIEST, deadline_ms)

    async def _latest(
        self, partitions: Partitions, deadline_ms: float
    ) -> dict[TopicPartition, int]:
        return await self._ends(partitions, LATEST, deadline_ms)

    async def _ends(
        self, partitions: Partitions, which: int, deadline_ms: float
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self._keys(partitions), which)
        listed = await self._machine.questions.list_offsets(wanted, deadline_ms)
        return {key: listed[key].offset for key in wanted}

    async def _for_times(
        self, times_ms: Mapping[TopicPartition, int], deadline_ms: float
    ) -> dict[TopicPartition, ListedOffset | None]:
        wanted = {
            (topic, partition): as_long(times_ms[topic, partition], f"time for {topic}-{partition}")
            for topic, partition in self._keys(times_ms)
        }
        listed = await self._machine.questions.list_offsets(wanted, deadline_ms)
        return {key: None if listed[key].offset == NOT_FOUND else listed[key] for key in wanted}

    async def _lag(self, deadline_ms: float) -> dict[TopicPartition, int]:
        positions = {}
        for key in list(self._machine.subscription.partitions):
            positions[key] = await self._position(key, deadline_ms)
        ends = await self._ends(list(positions), LATEST, deadline_ms) if positions else {}
        return {key: max(0, ends[key] - position) for key, position in positions.items()}
