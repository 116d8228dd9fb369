"""One group of the classic protocol: its members, its generation, and what is owed to whom.

Owns what is true of the group at this moment and answers questions about it; when something has to
happen is for `classic_groups`. `stored` is what the log holds of it and is set by replay alone;
everything else is lost with the process, and then read again from `stored`.

States: EMPTY, PREPARING (members are told to join again), COMPLETING (all have joined, the leader's
assignment is awaited), STABLE. DEAD is a group that is no longer in the shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.base.deferred import Deferred
from ottla.coordinator import offsets_records as formats
from ottla.coordinator.consumer_protocol import UnreadableSubscription, subscribed_topics
from ottla.coordinator.group import CLASSIC
from ottla.coordinator.member_memory import MEMBER_BYTES, PENDING_BYTES, MemberMemory
from ottla.coordinator.offsets_records import StoredGroup, StoredMember
from ottla.coordinator.shard import Fields, Record
from ottla.protocol.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

CONSUMER_PROTOCOL_TYPE = "consumer"

# Assignors have short names; a hostile one of 32 KB would take 2 ms for each member to hash.
HASHED_BYTES_MAX = 512

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of a member's assignment strategies, the one it likes best first."""


def size_of(protocols: Protocols) -> int:
    """What a member with these holds in memory, about."""
    return MEMBER_BYTES + sum(len(name) + len(metadata) for name, metadata in protocols)


def join_refusal(code: int, member_id: str) -> Fields:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


@dataclass(slots=True, eq=False)
class ClassicMember:
    """`join` and `sync` are the answers it waits for. `is_new`: it was never answered to a join.

    Its session ends at `deadline_ms` unless it is heard of; `timer_due_ms` is when its timer looks
    next, which may be earlier: a heartbeat moves the deadline and leaves the timer alone.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join: Deferred[Fields] | None = None
    sync: Deferred[Fields] | None = None
    deadline_ms: int = 0
    timer_due_ms: int | None = None

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    def is_excused(self) -> bool:
        """Whoever waits for us cannot send heartbeats; but a new member may have gone meanwhile."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def size(self) -> int:
        return size_of(self.protocols)


class ClassicGroup:
    kind = CLASSIC

    __slots__ = (
        "_memory",
        "_protocol_counts",
        "generation",
        "group_id",
        "leader_id",
        "member_joined_meanwhile",
        "members",
        "pending",
        "pending_sync",
        "previous_state",
        "protocol",
        "protocol_type",
        "since_ms",
        "state",
        "static_members",
        "stored",
        "topics",
        "waiting_joins",
    )

    def __init__(self, group_id: str, since_ms: int, memory: MemberMemory) -> None:
        self._memory = memory
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.since_ms = since_ms
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending: set[str] = set()
        self.pending_sync: set[str] = set()
        self.waiting_joins = 0
        self.member_joined_meanwhile = False
        self.topics: frozenset[str] | None = None
        self.stored: StoredGroup | None = None
        self._protocol_counts: Counter[str] = Counter()

    # -- members ----------------------------------------------------------------------------

    def add_pending(self, member_id: str) -> None:
        self.pending.add(member_id)
        self._memory.held += PENDING_BYTES

    def add(self, member: ClassicMember) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._protocol_counts.update(name for name, _ in member.protocols)
        self.waiting_joins += member.join is not None
        self._memory.held += member.size()
        self._remove_pending(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Forgets it, whether it is a member or only has got an id."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._protocol_counts.subtract(name for name, _ in member.protocols)
            self.waiting_joins -= member.join is not None
            self._memory.held -= member.size()
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._remove_pending(member_id)
        self.pending_sync.discard(member_id)
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._protocol_counts.subtract(name for name, _ in member.protocols)
        self._memory.held -= member.size()
        member.protocols = protocols
        self._memory.held += member.size()
        self._protocol_counts.update(name for name, _ in protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """The same instance under a new id. It keeps its place, its metadata and its assignment."""
        new = ClassicMember(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        was_leader = self.leader_id == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if was_leader:
            self.leader_id = new_id
        return new

    def forget_all(self) -> None:
        for member_id in (*self.members, *self.pending):
            self.remove(member_id)

    def is_hollow(self) -> bool:
        """Nobody is in it or about to be, and the log says nothing of it."""
        return self.state == EMPTY and not self.pending and self.stored is None

    def _remove_pending(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self._memory.held -= PENDING_BYTES

    def wait_for_join(self, member: ClassicMember, answer: Deferred[Fields]) -> None:
        # Of two joins of one member the older one came over a connection that is gone.
        self.answer_join(member, join_refusal(REBALANCE_IN_PROGRESS, member.member_id))
        self.waiting_joins += 1
        member.join = answer

    def answer_join(self, member: ClassicMember, fields: Fields) -> None:
        answer, member.join = member.join, None
        if answer is not None:
            self.waiting_joins -= 1
            answer.resolve(fields)

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return UNKNOWN_MEMBER_ID
            if holder != member_id:
                return FENCED_INSTANCE_ID
        return NONE if member_id in self.members else UNKNOWN_MEMBER_ID

    def all_joined(self) -> bool:
        return self.waiting_joins == len(self.members) and not self.pending

    def elect_joined_leader(self) -> bool:
        """The leader has to be somebody who has joined; False if nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- protocols --------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that offers these has one in common with all others."""
        if self.state == EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        count = len(self.members)
        return any(self._protocol_counts[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """The one that most members like best of those that all support."""
        count = len(self.members)
        candidates = {name for name, held in self._protocol_counts.items() if held == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], _place_in_kafkas_count(name), name))

    def learn_topics(self) -> None:
        """What the members subscribe to, where that can be told: it keeps offsets from expiring."""
        self.topics = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return
        if self.members and self.protocol is None:
            return
        try:
            self.topics = frozenset(
                topic
                for member in self.members.values()
                for topic in subscribed_topics(member.metadata_for(self.protocol))
            )
        except UnreadableSubscription:
            self.topics = None

    # -- generations ------------------------------------------------------------------------

    def move_to(self, state: str, since_ms: int) -> None:
        self.previous_state = self.state
        self.state = state
        self.since_ms = since_ms

    def begin_generation(self, since_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.learn_topics()
        self.move_to(COMPLETING if self.members else EMPTY, since_ms)
        self.pending_sync.clear()

    def to_store(self, assignments: dict[str, bytes]) -> StoredGroup:
        """The group as the log shall hold it, with these assignments."""
        members = tuple(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(self.protocol),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return StoredGroup(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader_id,
            self.since_ms,
            members,
        )

    def restore(self, stored: StoredGroup) -> None:
        """Becomes what the log says; everybody is taken for alive until a session has passed."""
        self.forget_all()
        self.leader_id = stored.leader
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type
        self.protocol = stored.protocol
        for one in stored.members:
            self.add(
                ClassicMember(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    one.rebalance_timeout_ms,
                    one.session_timeout_ms,
                    ((stored.protocol or "", one.subscription),),
                    one.assignment,
                )
            )
        self.previous_state = DEAD
        self.state = STABLE if self.members else EMPTY
        self.since_ms = stored.since_ms
        self.learn_topics()
        self.stored = stored

    # -- what both kinds of group are asked -------------------------------------------------

    def state_name(self) -> str:
        return self.state

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,
        *,
        transactional: bool,
    ) -> int:
        if generation < 0 and self.state == EMPTY:
            return NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self.check_member(member_id, instance_id)
            if code != NONE:
                return code
            if generation != self.generation:
                return ILLEGAL_GENERATION
        elif not transactional:
            return UNKNOWN_MEMBER_ID
        if self.state == COMPLETING and not transactional:
            return REBALANCE_IN_PROGRESS
        return NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> int:
        return NONE

    def check_delete(self) -> int:
        return NONE if self.state == EMPTY else NON_EMPTY_GROUP

    def check_offset_delete(self) -> int:
        if self.state == EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return NONE
        return NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    def expiry_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        if not self.protocol_type:
            return commit_timestamp_ms
        if self.state == EMPTY:
            return commit_timestamp_ms if self.since_ms < 0 else self.since_ms
        if self.state == STABLE and self.topics is not None:
            return commit_timestamp_ms
        return None

    def may_vanish(self) -> bool:
        return self.state == EMPTY and not self.pending

    def tombstones(self) -> list[Record]:
        return [Record(formats.group_key(self.group_id), None)]


def _place_in_kafkas_count(protocol: str) -> int:
    """Where Java's HashMap has this name among a few: Kafka takes the first of those with the most
    votes. So who joined first does not matter, and a group agrees on the same with either broker.
    """
    units = protocol.encode("utf-16-be", "surrogatepass")
    if len(units) > HASHED_BYTES_MAX:
        return 16  # behind all others
    hashed = 0
    for place in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[place : place + 2])) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15


def as_protocols(protocols: Sequence[Any]) -> Protocols:
    """From a decoded request. A name that is given twice counts once. With Kafka it counts twice,
    so that it is not common to all; a group that has no other waits for ever.
    """
    found: dict[str, bytes] = {}
    for one in protocols:
        found.setdefault(one.name, bytes(one.metadata))
    return tuple(found.items())
