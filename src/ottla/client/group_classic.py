"""Membership in a group by the classic protocol: join, sync, heartbeat, leave.

The members agree on an assignor, and one of them, the leader, shares out the partitions for all
(`assignors`). Eager members give up everything before they join; cooperative ones keep what they
have, give up only what the new share takes from them, and join once more so that others get it.

Always holds: nothing is handed out of a partition between its revocation and its next assignment;
commits bear the generation in which the partitions were given.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import MalformedRequest
from ottla.base.ids import TopicPartition
from ottla.client.assignors.member_bytes import (
    NO_GENERATION,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.client.assignors.registry import Assignor, are_cooperative, assignors_named
from ottla.client.backoff import backoff_ms
from ottla.client.errors import ClientError, MalformedAnswerError
from ottla.client.group_commits import MemberIdentity
from ottla.client.group_member import NEVER, GroupMember
from ottla.client.nodes import COORDINATOR
from ottla.client.pending import Flow
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

logger = logging.getLogger("ottla.client")

PROTOCOL_TYPE = "consumer"
_JOIN_EXTRA_MS = 5_000
_LEAVE_TIMEOUT_MS = 5_000
_LEAVING = "leaving"
_ROUNDS_AT_ONCE = 3
"""Joining again is part of the protocol; more often than that, something is wrong."""
_FORGOTTEN = frozenset({codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION})
_AGAIN = frozenset({codes.REBALANCE_IN_PROGRESS, codes.MEMBER_ID_REQUIRED})

PartitionCounts = dict[str, int]


class _JoinAgain(Exception):
    """The group is not what it was when this round began."""


class ClassicMember(GroupMember):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._assignors = assignors_named(self.settings.partition_assignment_strategy)
        self._is_cooperative = are_cooperative(self._assignors)
        self.member_id = ""
        self.generation = NO_GENERATION
        self._last: tuple[int, Sequence[TopicPartition]] = (NO_GENERATION, ())
        """What it had when it was last in a generation, for the sticky assignor."""
        self._is_joined = False
        self._must_join = True
        self._is_lost = False
        """The coordinator has forgotten it: its partitions may be others' already."""
        self._joined_topics: list[str] = []
        self._counts_as_leader: PartitionCounts | None = None
        """What the last share that this member made was made of."""
        self._reason = "it is new"
        self._is_joining = False
        """Between asking to join and the share that comes of it."""
        self._fatal: ClientError | None = None
        self._beats: Flow[None] | None = None

    # -------------------------------------------------------------------------- for the host

    def identity(self) -> MemberIdentity | None:
        if self.generation == NO_GENERATION:
            return None
        return MemberIdentity(self.member_id, self.generation, self.settings.group_instance_id)

    def on_ousted(self, code: int, identity: MemberIdentity) -> None:
        if code == codes.FENCED_INSTANCE_ID:
            self._fatal = self.refusal(code)
            self.nudge.set()
        elif self._is_joining or identity.generation != self.generation:
            return  # about a generation that is over; the join says what this member is now
        elif code in _FORGOTTEN:
            self._forget_membership("the coordinator does not know it", code)
        else:
            self.require_join("a commit found a rebalance under way")

    def require_join(self, reason: str) -> None:
        self._must_join = True
        self._reason = reason
        self.nudge.set()

    def start(self) -> None:
        super().start()
        if self._beats is None or self._beats.done:
            self._beats = self.core.spawn(self._beat_forever())
            self._beats.when_done(lambda _: None)

    def stop(self) -> None:
        super().stop()
        if self._beats is not None:
            self._beats.cancel()
            self._beats = None

    async def leave(self, reason: str) -> None:
        """A static member stays one: its instance will come back."""
        # A coordinator answers in order: behind a join that waits for others, nothing gets through.
        purpose = _LEAVING if self._is_joining else COORDINATOR
        self.stop()
        member_id, self.member_id, self.generation = self.member_id, "", NO_GENERATION
        await self._tell_leaving(member_id, reason, purpose)

    async def _tell_leaving(self, member_id: str, reason: str, purpose: str = COORDINATOR) -> None:
        if not member_id or self.settings.group_instance_id is not None:
            return
        member = {"member_id": member_id, "group_instance_id": None, "reason": reason}
        fields = {"group_id": self.group_id, "member_id": member_id, "members": [member]}
        try:
            await self.ask(LEAVE_GROUP, fields, purpose, timeout_ms=_LEAVE_TIMEOUT_MS)
        except ClientError as error:
            logger.info("group %s: left without an answer: %s", self.group_id, error)

    # ------------------------------------------------------------------------------ its life

    async def _run(self) -> None:
        failures = 0
        while True:
            if self._fatal is not None:
                fatal, self._fatal = self._fatal, None
                self._forget_membership("it was refused", code=codes.UNKNOWN_MEMBER_ID)
                raise fatal
            if not self._must_join:
                await self.nudge.wait(NEVER)
                self._look_for_changes()
                continue
            try:
                await self._join()
                failures = 0
            except _JoinAgain:
                failures += 1
                if failures > _ROUNDS_AT_ONCE:
                    await self._pause(failures)
            except ClientError as error:
                if not error.retriable:
                    raise
                failures += 1
                await self._pause(failures)
            finally:
                self.hand_out_again()

    async def _pause(self, failures: int) -> None:
        settings = self.settings
        pause_ms = backoff_ms(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, failures, self.core.chance()
        )
        await self.core.sleep_until(self.core.now_ms + pause_ms)

    # --------------------------------------------------------------------------------- join

    async def _join(self) -> None:
        await self.host.in_poll()
        await self._prepare()
        topics = self.host.topics_to_read()
        self._is_joining = True
        try:
            answer = await self._ask_to_join(topics)
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            self._joined_topics = topics
            shares = await self._shares(answer)
            assignment = await self._sync(answer.protocol_name, shares)
        finally:
            self._is_joining = False
        self.host.note_identity()
        await self._take(assignment)

    async def _prepare(self) -> None:
        """Gives up what must not be kept while joining."""
        held = list(self.host.subscription.partitions)
        if self._is_lost:
            self._is_lost = False
            self._take_away(held)
            await self.host.tell_lost(held)
            return
        if not self._is_joined or not held:
            return
        if self._is_cooperative:
            wanted = set(self.host.topics_to_read())
            given_up = [key for key in held if key[0] not in wanted]
            if given_up:
                self.holds_back = True
                await self.host.commit_before_revoking()
                await self.host.tell_revoked(given_up)
                self._take_away(given_up)
                self.hand_out_again()
            return
        self.holds_back = True
        await self.host.commit_before_revoking()
        await self.host.tell_revoked(held)
        self._take_away(held)

    def _take_away(self, partitions: Sequence[TopicPartition]) -> None:
        gone = set(partitions)
        held = self.host.subscription.partitions
        self.host.subscription.set_partitions([key for key in held if key not in gone])

    async def _ask_to_join(self, topics: list[str]) -> Any:
        settings = self.settings
        fields = {
            "group_id": self.group_id,
            "session_timeout_ms": settings.session_timeout_ms,
            "rebalance_timeout_ms": settings.max_poll_interval_ms,
            "member_id": self.member_id,
            "group_instance_id": settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [
                {"name": assignor.name, "metadata": self._subscription(assignor, topics)}
                for assignor in self._assignors
            ],
            "reason": self._reason,
        }
        timeout_ms = max(
            settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_EXTRA_MS
        )
        self._must_join = False
        try:
            answer = await self.ask(JOIN_GROUP, fields, timeout_ms=timeout_ms)
            if answer.error_code == codes.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            self._judge(answer.error_code)
        except BaseException:
            self._must_join = True
            raise
        return answer

    def _subscription(self, assignor: Assignor, topics: list[str]) -> bytes:
        generation, last = self._last
        owned = list(self.host.subscription.partitions) if self._is_cooperative else []
        return encode_subscription(
            Subscription(
                topics=topics,
                owned=owned,
                generation=generation,
                user_data=assignor.user_data(generation, last),
                rack=self.settings.client_rack or None,
            )
        )

    def _judge(self, code: int) -> None:
        """Raises for everything but success, and takes note of what it means."""
        if code == codes.NONE:
            return
        if code in _FORGOTTEN:
            self._forget_membership("the coordinator did not know it", code)
            raise _JoinAgain
        if code in _AGAIN:
            self._must_join = True
            raise _JoinAgain
        raise self.refusal(code)

    # ------------------------------------------------------------------------ the leader's part

    async def _shares(self, answer: Any) -> list[dict[str, Any]]:
        assignor = self._assignor_named(answer.protocol_name)
        self._counts_as_leader = None
        if answer.leader != answer.member_id:
            return []
        members = {}
        for one in answer.members:
            try:
                members[one.member_id] = decode_subscription(one.metadata)
            except MalformedRequest as cause:
                raise MalformedAnswerError(f"member {one.member_id}: {cause}") from cause
            members[one.member_id].instance_id = one.group_instance_id
        read = {topic for member in members.values() for topic in member.topics}
        counts = await self._count_partitions(read)
        self._counts_as_leader = counts
        if answer.skip_assignment:
            return []
        assigned = assignor.assign(counts, members)
        return [
            {"member_id": member, "assignment": encode_assignment(partitions)}
            for member, partitions in assigned.items()
        ]

    def _assignor_named(self, name: str | None) -> Assignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise MalformedAnswerError(f"group {self.group_id} chose assignor {name!r}")

    async def _count_partitions(self, topics: set[str]) -> PartitionCounts:
        """Of topics that others read as well: the leader has to know them all from now on."""
        metadata, cluster = self.core.metadata, self.core.cluster
        unknown = [topic for topic in topics if cluster.partition_count(topic) is None]
        if unknown and not metadata.all_topics:
            for topic in unknown:
                metadata.want(topic)
            deadline_ms = self.core.now_ms + self.settings.request_timeout_ms
            await self.core.within(metadata.next_update(), deadline_ms, "topics of the group")
        return self._known_counts(topics)

    def _known_counts(self, topics: set[str]) -> PartitionCounts:
        counts = {topic: self.core.cluster.partition_count(topic) for topic in sorted(topics)}
        return {topic: count for topic, count in counts.items() if count}

    def topics_of_group(self) -> set[str]:
        return set(self._counts_as_leader or ())

    # ------------------------------------------------------------------------------- sync, take

    async def _sync(self, protocol_name: str, shares: list[dict[str, Any]]) -> bytes:
        fields = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": protocol_name,
            "assignments": shares,
        }
        self._must_join = True  # until the answer says that it is not so
        timeout_ms = max(
            self.settings.request_timeout_ms, self.settings.max_poll_interval_ms + _JOIN_EXTRA_MS
        )
        answer = await self.ask(SYNC_GROUP, fields, timeout_ms=timeout_ms)
        self._judge(answer.error_code)
        self._must_join = False
        return bytes(answer.assignment)

    async def _take(self, assignment: bytes) -> None:
        try:
            partitions = decode_assignment(assignment).partitions
        except MalformedRequest as cause:
            raise MalformedAnswerError(f"group {self.group_id}: {cause}") from cause
        self._is_joined = True
        self._last = (self.generation, partitions)
        subscription = self.host.subscription
        revoked = [key for key in subscription.partitions if key not in set(partitions)]
        if revoked:
            # Only cooperative members still have any. Others get these in the next round.
            await self.host.in_poll()
            self.holds_back = True
            await self.host.commit_before_revoking()
            await self.host.tell_revoked(revoked)
            self._take_away(revoked)
            self.hand_out_again()
            self.require_join(f"{len(revoked)} partitions were given up")
        added = subscription.set_partitions(partitions)
        for state in added:
            state.is_announced = False
        await self.host.tell_assigned([state.key for state in added])
        for state in added:
            state.is_announced = True
        logger.debug("group %s: generation %s has %s", self.group_id, self.generation, partitions)

    def _look_for_changes(self) -> None:
        if self.host.topics_to_read() != self._joined_topics:
            self.require_join("it reads other topics")
        elif self._counts_as_leader is not None:
            counts = self._known_counts(set(self._counts_as_leader))
            if counts != self._counts_as_leader:
                self.require_join("topics have other partitions")

    # ---------------------------------------------------------------------------- heartbeats

    async def _beat_forever(self) -> None:
        """Also while the application takes its time with what it polled, or with a callback; not
        while it joins, since the coordinator answers in order."""
        due_ms = self.core.now_ms + self.settings.heartbeat_interval_ms
        while True:
            await self.core.sleep_until(self.next_look_ms(due_ms))
            is_member = self.generation != NO_GENERATION and not self._is_joining
            if is_member and not self.is_polled_in_time():
                await self._leave_until_polled()
            elif self.core.now_ms < due_ms:
                continue
            elif is_member:
                await self._beat_or_note()
            due_ms = self.core.now_ms + self.settings.heartbeat_interval_ms

    async def _beat_or_note(self) -> None:
        try:
            await self._beat()
        except ClientError as error:
            if error.retriable:
                logger.debug("group %s: no heartbeat: %s", self.group_id, error)
            else:
                self._fatal = error
                self.nudge.set()

    async def _beat(self) -> None:
        generation = self.generation
        fields = {
            "group_id": self.group_id,
            "generation_id": generation,
            "member_id": self.member_id,
            "group_instance_id": self.settings.group_instance_id,
        }
        answer = await self.ask(HEARTBEAT, fields)
        if self._is_joining or generation != self.generation:
            return  # about a generation that is over
        try:
            self._judge(answer.error_code)
        except _JoinAgain:
            self.require_join("others join or leave")

    async def _leave_until_polled(self) -> None:
        """The application hangs, as far as anybody can tell: others get its partitions."""
        logger.warning(
            "group %s: no poll for %s ms (max.poll.interval.ms): leaving until the next one",
            self.group_id,
            self.settings.max_poll_interval_ms,
        )
        member_id = self.member_id
        # Before anybody is asked: who polls meanwhile has lost its partitions, and joins anew.
        self._forget_membership("it was away for longer than max.poll.interval.ms")
        await self._tell_leaving(member_id, "no poll within max.poll.interval.ms")

    def _forget_membership(self, reason: str, code: int = codes.UNKNOWN_MEMBER_ID) -> None:
        if code == codes.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = NO_GENERATION
        self._is_lost = self._is_lost or self._is_joined
        self._is_joined = False
        self.require_join(reason)
