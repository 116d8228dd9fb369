"""A fetch session with one broker (KIP-227): only what changed is asked for, and answered.

Owns what the broker believes this reader wants: id, epoch and partitions. `plan` gives what the
next request must say to make the broker believe the truth; `on_answer` follows what became of it.
After a failure nobody knows what the broker took note of, so all is said anew (`begin_anew`).

Topics go by id where all of them have one, else by name; a session does not survive the change.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.protocol.error_codes import NONE
from ottla.protocol.primitives import NULL_UUID

FIRST_EPOCH = 0
NO_SESSION = 0
_EPOCH_MAX = 2**31 - 1

NEWEST_BY_NAME = 12
"""The last version of Fetch with topics' names."""


class Wish(NamedTuple):
    """What is wanted of one partition."""

    offset: int
    leader_epoch: int
    bytes_max: int


class Plan(NamedTuple):
    session_id: int
    epoch: int
    wanted: dict[TopicPartition, Wish]
    forgotten: list[tuple[str, uuid.UUID, int]]
    """Topic, its id then, partition."""
    by_id: bool


class FetchSession:
    __slots__ = ("_by_id", "_epoch", "_ids", "_known", "_names", "_session_id")

    def __init__(self) -> None:
        self._known: dict[TopicPartition, Wish] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._by_id = False
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH

    def plan(
        self, wishes: Mapping[TopicPartition, Wish], topic_ids: Mapping[str, uuid.UUID]
    ) -> Plan:
        """What to say so that the broker knows `wishes`; takes it for said."""
        by_id = all(topic_ids.get(topic, NULL_UUID) != NULL_UUID for topic, _ in wishes)
        if by_id != self._by_id:
            self._by_id = by_id
            self.begin_anew()
        forgotten: list[tuple[str, uuid.UUID, int]] = []
        if self._epoch == FIRST_EPOCH:
            changed = dict(wishes)
        else:
            changed = {}
            for key, wish in wishes.items():
                # A topic that was deleted and made anew is another one, whatever its name.
                is_same = self._ids.get(key[0]) == topic_ids.get(key[0])
                if key in self._known and not is_same:
                    forgotten.append((key[0], self._ids.get(key[0], NULL_UUID), key[1]))
                if self._known.get(key) != wish or not is_same:
                    changed[key] = wish
            forgotten += [
                (key[0], self._ids.get(key[0], NULL_UUID), key[1])
                for key in self._known
                if key not in wishes
            ]
        self._known = dict(wishes)
        self._ids = {topic: topic_ids.get(topic, NULL_UUID) for topic, _ in wishes}
        self._names = {topic_id: topic for topic, topic_id in self._ids.items()}
        return Plan(self._session_id, self._epoch, changed, forgotten, by_id)

    def awaits_news_of(self, key: TopicPartition) -> bool:
        """Whether the broker would say nothing of it until something changes there."""
        return self._epoch != FIRST_EPOCH and key in self._known

    def name_of(self, topic: str | uuid.UUID) -> str | None:
        return topic if isinstance(topic, str) else self._names.get(topic)

    def on_answer(self, error_code: int, session_id: int) -> None:
        if error_code != NONE:
            self.begin_anew()
        elif self._epoch == FIRST_EPOCH:
            # A broker without room for a session answers with none: all is said every time.
            self._session_id = session_id
            self._epoch = FIRST_EPOCH if session_id == NO_SESSION else 1
        elif session_id != self._session_id:
            self.begin_anew()
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def begin_anew(self) -> None:
        """Under the old id: the broker closes that session as it opens the next."""
        self._epoch = FIRST_EPOCH
