"""Membership in a group by the newer protocol (KIP-848): one request, the heartbeat, says it all.

The broker shares out the partitions. Each heartbeat's answer may bring a new target; the member
gives up what is not in it, takes what is new, and says in its next heartbeat what it has. Only what
changed is said. While the application is not polling, heartbeats go on with what it has.

Always holds: what is said to be owned is what the application was told of, no more; a partition is
taken only from a target, and the broker puts it into one only when its last owner has let it go.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.backoff import backoff_ms
from ottla.client.errors import ClientError
from ottla.client.group_commits import MemberIdentity
from ottla.client.group_member import GroupMember
from ottla.client.pending import Flow
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import CONSUMER_GROUP_HEARTBEAT

logger = logging.getLogger("ottla.client")

_JOINING = 0
_LEAVING = -1
_LEAVING_STATIC = -2
_LEAVE_TIMEOUT_MS = 5_000
_INTERVAL_MS = 5_000
_FENCED = frozenset({codes.UNKNOWN_MEMBER_ID, codes.FENCED_MEMBER_EPOCH})

Target = frozenset[tuple[uuid.UUID, int]]


class ConsumerMember(GroupMember):
    def __init__(self, *arguments: Any, member_id: str) -> None:
        super().__init__(*arguments)
        self.member_id = member_id
        self.epoch = _JOINING
        self._interval_ms = float(_INTERVAL_MS)
        self._said: dict[str, Any] = {}
        """What the broker knows of this member since it joined."""
        self._target: Target = frozenset()
        self._is_lost = False
        self._is_away = False
        """It left because nobody polled; the next poll brings it back."""
        self._reconciling: Flow[None] | None = None
        self._failures = 0

    # -------------------------------------------------------------------------- for the host

    def identity(self) -> MemberIdentity | None:
        if self.epoch <= 0:
            return None
        return MemberIdentity(self.member_id, self.epoch, self.settings.group_instance_id)

    def on_ousted(self, code: int, identity: MemberIdentity) -> None:
        self.nudge.set()  # the next heartbeat tells what is true

    def stop(self) -> None:
        super().stop()
        self._stop_reconciling()

    async def leave(self, reason: str) -> None:
        self.stop()
        await self._tell_leaving()

    async def _tell_leaving(self) -> None:
        was, self.epoch = self.epoch, _JOINING
        if was <= 0:
            return
        is_static = self.settings.group_instance_id is not None
        fields = self._fields(_LEAVING_STATIC if is_static else _LEAVING, {})
        try:
            await self.ask(CONSUMER_GROUP_HEARTBEAT, fields, timeout_ms=_LEAVE_TIMEOUT_MS)
        except ClientError as error:
            logger.info("group %s: left without an answer: %s", self.group_id, error)

    # ------------------------------------------------------------------------------ its life

    async def _run(self) -> None:
        while True:
            if self._is_away:
                await self.host.in_poll()
                self._is_away = False
            if self.epoch == _JOINING:
                await self._give_up_lost()
            try:
                await self._beat()
                self._failures = 0
                await self._rest_until(self.core.now_ms + self._interval_ms)
            except ClientError as error:
                if not error.retriable:
                    self._fence()
                    raise
                logger.debug("group %s: no heartbeat: %s", self.group_id, error)
                self._failures += 1
                await self.core.sleep_until(self.core.now_ms + self._pause_ms())
            if self.epoch > 0 and not self.is_polled_in_time():
                await self._leave_until_polled()

    async def _rest_until(self, due_ms: float) -> None:
        """Shorter if there is something to say, or the application has not polled for too long."""
        while not await self.nudge.wait(self.next_look_ms(due_ms)):
            if self.core.now_ms >= due_ms or not self.is_polled_in_time():
                return

    def _pause_ms(self) -> float:
        settings = self.settings
        return backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            self._failures,
            self.core.chance(),
        )

    async def _leave_until_polled(self) -> None:
        """The application hangs, as far as anybody can tell: others get its partitions."""
        logger.warning(
            "group %s: no poll for %s ms (max.poll.interval.ms): leaving until the next one",
            self.group_id,
            self.settings.max_poll_interval_ms,
        )
        await self._tell_leaving()
        self._fence()
        self._is_away = True

    # ---------------------------------------------------------------------------- heartbeats

    async def _beat(self) -> None:
        said = self._everything()
        if self.epoch == _JOINING:
            self._said = {}
            said["topic_partitions"] = []
        news = {name: value for name, value in said.items() if self._said.get(name) != value}
        answer = await self.ask(
            CONSUMER_GROUP_HEARTBEAT,
            self._fields(self.epoch, news),
            version_min=1 if self.host.subscription.broker_pattern is not None else None,
        )
        code = answer.error_code
        if code in _FENCED:
            self._fence()
            self.nudge.set()
            return
        if code != codes.NONE:
            self._said = {}  # who knows how much of it was heard
            raise self.refusal(code, answer.error_message)
        self._said = said
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        self.host.note_identity()
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self._target = frozenset(
                (one.topic_id, partition)
                for one in answer.assignment.topic_partitions
                for partition in one.partitions
            )
        self._reconcile()

    def _everything(self) -> dict[str, Any]:
        """All that a heartbeat can say of this member."""
        settings, subscription = self.settings, self.host.subscription
        pattern = subscription.broker_pattern
        return {
            "instance_id": settings.group_instance_id,
            "rack_id": settings.client_rack or None,
            "rebalance_timeout_ms": settings.max_poll_interval_ms,
            "subscribed_topic_names": self.host.topics_to_read() if pattern is None else [],
            "subscribed_topic_regex": pattern or "",
            "server_assignor": settings.group_remote_assignor,
            "topic_partitions": self._by_id(subscription.partitions),
        }

    def _fields(self, epoch: int, news: dict[str, Any]) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self.settings.group_instance_id,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **news,
        }

    def _by_id(self, partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
        ids: dict[uuid.UUID, list[int]] = {}
        for topic, partition in sorted(partitions):
            info = self.core.cluster.topics.get(topic)
            if info is not None:
                ids.setdefault(info.topic_id, []).append(partition)
        return [{"topic_id": topic, "partitions": parts} for topic, parts in ids.items()]

    def _fence(self) -> None:
        """The group goes on without it: what it had may be others' already."""
        self.epoch = _JOINING
        self._said = {}
        self._target = frozenset()
        self._is_lost = True
        self._stop_reconciling()

    async def _give_up_lost(self) -> None:
        held = list(self.host.subscription.partitions)
        if not self._is_lost or not held:
            self._is_lost = False
            return
        self.host.subscription.set_partitions(())
        await self.host.in_poll()
        await self.host.tell_lost(held)
        self._is_lost = False

    # ------------------------------------------------------------------------ reconciliation

    def on_metadata_changed(self) -> None:
        said = self._said.get("subscribed_topic_names")
        if said is not None and said != self._everything()["subscribed_topic_names"]:
            self.nudge.set()
        self._reconcile()

    def _reconcile(self) -> None:
        if self._reconciling is None and self.epoch > 0 and self._difference() != ([], []):
            self._reconciling = self.core.spawn(self._go_to_target())
            self._reconciling.when_done(self._on_reconciled)

    def _on_reconciled(self, _: object) -> None:
        self._reconciling = None

    def _stop_reconciling(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            self._reconciling = None
        self.hand_out_again()

    def _difference(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """What to give up and what to take; topics whose names are not known yet come later."""
        names = self.core.cluster.names_by_id
        held = self.host.subscription.partitions
        wanted = set()
        for topic_id, partition in self._target:
            name = names.get(topic_id)
            if name is None:
                self.core.metadata.request_update()
            else:
                wanted.add((name, partition))
        revoked = [key for key in held if key not in wanted]
        return revoked, sorted(key for key in wanted if key not in held)

    async def _go_to_target(self) -> None:
        await self.host.in_poll()
        revoked, _ = self._difference()
        if revoked:
            self.holds_back = True
            await self.host.commit_before_revoking()
            await self.host.tell_revoked(revoked)
            held = self.host.subscription.partitions
            gone = set(revoked)
            self.host.subscription.set_partitions([key for key in held if key not in gone])
            self.hand_out_again()
        _, added = self._difference()
        states = self.host.subscription.set_partitions([*self.host.subscription.partitions, *added])
        for state in states:
            state.is_announced = False
        await self.host.tell_assigned(added)
        for state in states:
            state.is_announced = True
        self.nudge.set()  # the broker waits to hear of it
