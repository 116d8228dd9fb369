"""A consumer as it behaves: joins, assigns if it leads, syncs, sends heartbeats, reads and commits.

It knows what it was told and nothing else. It dawdles, forgets, dies and comes back as the world's
dice say. Eager: it lets go of everything before it joins again.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller, Fields, Outcome
from ottla.protocol.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

if TYPE_CHECKING:
    from sim.groups.world import World

GROUP = "g"
TOPIC = "t"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
RETRY_MS = 200


def name_in(member_id: str) -> str:
    """Ids begin with the name of the client or the instance, which are one here."""
    return member_id.partition("-")[0]


class SimulatedMember:
    def __init__(self, world: World, name: str, dice: Random) -> None:
        self.world = world
        self.name = name
        self.dice = dice
        self.instance_id = name if dice.random() < world.plan.static_share else None
        self.version = dice.choice((3, 9))
        self.session_ms = dice.choice((1000, 2000, 4000))
        self.rebalance_ms = dice.choice((1000, 2000, 3000))
        self.life = 0
        self.last_arrival_ms = 0
        self.is_alive = False
        self.member_id = ""
        self.generation = -1
        self.owned: dict[int, int] = {}
        self._busy_with = ""
        self._attempt = 0
        self._generations: list[int] = []
        """Each that it has got into, in order."""

    # -- life -------------------------------------------------------------------------------

    def start(self) -> None:
        self.life += 1
        self.is_alive = True
        self.member_id = ""
        self._forget()
        self._join()
        self._schedule(self._heartbeat_ms(), self._beat)
        self._schedule(self.dice.randint(50, 500), self._commit)

    def last_words(self) -> Callable[[], None]:
        """A commit as this member would send it now, to be sent when it is too late."""
        if not self.owned:
            return lambda: None
        partition = self.dice.choice(sorted(self.owned))
        offset = self.owned[partition] + 1
        decide = self._commit_decision(partition, offset)
        return lambda: self.world.ask_commit(self, decide, partition, offset, None)

    def change_connection(self) -> Callable[[], None]:
        """It joins again over a new connection; what it sent over the old one comes late.

        Returns that late commit. It is lost if the member has been in the same generation again:
        of two commits of one owner over two connections either may be the last.
        """
        generation, late = self.generation, self.last_words()
        since = len(self._generations)
        self.last_arrival_ms = 0
        self._join()

        def arrive() -> None:
            if generation not in self._generations[since:]:
                late()

        return arrive

    def _start_again(self) -> None:
        if not self.is_alive:
            self.start()

    def die(self) -> None:
        """Without a word. What was on its way to it is lost."""
        self.life += 1
        self.is_alive = False
        self._forget()

    def leave(self) -> None:
        request = SimpleNamespace(
            group_id=GROUP,
            members=[
                SimpleNamespace(
                    member_id=self.member_id, group_instance_id=self.instance_id, reason=None
                )
            ],
        )
        caller = self._caller(5)
        self.world.ask(self, lambda shard: shard.leave_group(request, caller), None)
        self.die()

    def _forget(self) -> None:
        self.generation = -1
        self.owned = {}
        self._busy_with = ""

    # -- joining ----------------------------------------------------------------------------

    def _join(self) -> None:
        if self._busy_with == "join":
            return
        self._forget()
        self._busy_with = "join"
        self._attempt += 1
        request = SimpleNamespace(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[SimpleNamespace(name="range", metadata=SUBSCRIPTION)],
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
        )
        caller = self._caller(self.version)
        self.world.ask(self, lambda shard: shard.join_group(request, caller), self._on_joined)

    def _on_joined(self, code: int, fields: Fields) -> None:
        self._busy_with = ""
        if code == MEMBER_ID_REQUIRED:
            self.member_id = fields["member_id"]
            self._join()
        elif code == NONE:
            self.member_id = fields["member_id"]
            self.generation = fields["generation_id"]
            self._generations.append(self.generation)
            delay_ms = self.world.dawdle_ms()
            self._busy_with = "sync"
            self._schedule(delay_ms, lambda attempt=self._attempt: self._sync(attempt, fields))
        else:
            self._recover(code)

    def _sync(self, attempt: int, joined: Fields) -> None:
        if attempt != self._attempt:
            return
        shares: dict[str, bytes] = {}
        if joined["leader"] == joined["member_id"] and not joined["skip_assignment"]:
            shares = self.world.assign([one["member_id"] for one in joined["members"]])
            self.world.ledger.on_meant(
                joined["generation_id"],
                {name_in(member_id): share for member_id, share in shares.items()},
            )
        request = SimpleNamespace(
            group_id=GROUP,
            generation_id=joined["generation_id"],
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SimpleNamespace(member_id=member_id, assignment=share)
                for member_id, share in shares.items()
            ],
        )
        caller = self._caller(5)
        self.world.ask(
            self,
            lambda shard: shard.sync_group(request, caller),
            lambda code, fields: self._on_synced(joined["generation_id"], code, fields),
        )

    def _on_synced(self, generation: int, code: int, fields: Fields) -> None:
        given: list[int] = []
        if code == NONE:
            given = self.world.ledger.on_given(generation, self.name, fields["assignment"])
        if generation != self.generation or self._busy_with != "sync":
            return  # it has joined again since
        self._busy_with = ""
        if code != NONE:
            self._recover(code)
            return
        request = SimpleNamespace(group_id=GROUP, member_id=None, member_epoch=-1, topics=None)
        caller = self._caller(8)
        self.world.look(
            self,
            lambda shard: shard.fetch_offsets(request, caller, require_stable=True),
            lambda code, found: self._on_fetched(generation, given, code, found),
        )

    def _on_fetched(self, generation: int, given: list[int], code: int, found: Fields) -> None:
        if generation != self.generation or self._busy_with:
            return
        if code != NONE:
            self._recover(code)
            return
        held = {
            part["partition_index"]: part["committed_offset"]
            for topic in found["topics"]
            for part in topic["partitions"]
        }
        self.owned = {partition: held.get(partition, -1) for partition in given}

    def _recover(self, code: int) -> None:
        if code == FENCED_INSTANCE_ID:
            # Somebody else goes by this name, or did so in the log: it is started again.
            self.die()
            self.world.time.call_later(RETRY_MS, self._start_again)
            return
        if code in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION):
            self.member_id = "" if code == UNKNOWN_MEMBER_ID else self.member_id
            self._forget()
        if code == REBALANCE_IN_PROGRESS:
            # It may have work at hand that it wants to finish, and to commit.
            if self._busy_with != "work":
                self._busy_with = "work"
                self._schedule(self.world.dawdle_ms(), self._join)
            return
        self._schedule(RETRY_MS, self._join)

    # -- working ----------------------------------------------------------------------------

    def _beat(self) -> None:
        self._schedule(self._heartbeat_ms(), self._beat)
        if self.generation < 0 or self._busy_with == "join" or self.world.dozes():
            return
        request = SimpleNamespace(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        caller = self._caller(4)
        generation = self.generation

        def told(code: int, fields: Fields) -> None:
            if code != NONE and self.generation == generation:
                self._recover(code)

        self.world.ask(self, lambda shard: shard.heartbeat(request, caller), told)

    def _commit(self) -> None:
        self._schedule(self.dice.randint(100, 600), self._commit)
        if not self.owned:
            return
        partition = self.dice.choice(sorted(self.owned))
        offset = self.owned[partition] + self.dice.randint(1, 9)
        self.owned[partition] = offset
        generation = self.generation

        def told(code: int, fields: Fields) -> None:
            if code == NONE:
                code = fields["topics"][0]["partitions"][0]["error_code"]
            if code != NONE and self.generation == generation and self._busy_with != "join":
                self._recover(code)

        decide = self._commit_decision(partition, offset)
        self.world.ask_commit(self, decide, partition, offset, told)

    def _commit_decision(
        self, partition: int, offset: int
    ) -> Callable[[GroupShard], Outcome[Fields]]:
        one = SimpleNamespace(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = SimpleNamespace(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            retention_time_ms=-1,
            topics=[SimpleNamespace(name=TOPIC, topic_id=None, partitions=[one])],
        )
        caller = self._caller(9)
        return lambda shard: shard.commit_offsets(request, caller)

    # -- small things -----------------------------------------------------------------------

    def _caller(self, version: int) -> Caller:
        return Caller(self.name, "/127.0.0.1", version)

    def _heartbeat_ms(self) -> int:
        return self.session_ms // 4

    def _schedule(self, delay_ms: int, action: Any) -> None:
        life = self.life

        def run() -> None:
            if self.is_alive and self.life == life:
                action()

        self.world.time.call_later(delay_ms, run)
