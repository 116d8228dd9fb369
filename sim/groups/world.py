"""One seed of the world: a group, its members, a network that delays and loses, a log that fails.

First everything that the dice allow happens; then the world heals, and the group has to come to
rest. Whatever anybody is told goes through the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.classic_group import PREPARING, STABLE, ClassicGroup
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.member_memory import PENDING_BYTES
from ottla.coordinator.shard import Fields, Outcome
from ottla.protocol.error_codes import NONE
from sim.groups.hosted_shard import COMMIT_TIMEOUT_MS, HostedShard, a_cluster
from sim.groups.ledger import Ledger, Violation
from sim.groups.member import GROUP, SimulatedMember

Told = Callable[[int, Fields], None]

TROUBLE_MS = 20_000
SESSION_MS_MAX = 4000
REBALANCE_MS_MAX = 3000
NETWORK_MS_MAX = 40
LATE_MS_MAX = 8000
"""In a socket of a connection that is given up, or of a process that is paused."""

# A join waits for the phase before it, a sync for a leader that dawdles, both for the log.
ANSWER_MS_MAX = 2 * (REBALANCE_MS_MAX + SESSION_MS_MAX)


@dataclass
class Plan:
    """What may happen in this seed, and how often. A quarter of all seeds is untroubled."""

    members: int
    partitions: int
    initial_delay_ms: int
    static_share: float
    loss: float
    dawdle: float
    doze: float
    fault_ms: int
    churn_ms: int

    @classmethod
    def draw(cls, dice: Random) -> Plan:
        calm = dice.random() < 0.25
        return cls(
            members=dice.randint(1, 5),
            partitions=dice.randint(1, 6),
            initial_delay_ms=dice.choice((0, 300)),
            static_share=dice.choice((0, 0.4, 1)),
            loss=0 if calm else dice.choice((0, 0.02, 0.1)),
            dawdle=0 if calm else dice.choice((0, 0.1, 0.3)),
            doze=0 if calm else dice.choice((0, 0.1, 0.4)),
            fault_ms=TROUBLE_MS * 2 if calm else dice.choice((800, 2000, 5000)),
            churn_ms=dice.choice((800, 2000, 5000)),
        )


class World:
    def __init__(self, seed: int, make_shard: Callable[..., GroupShard] = GroupShard) -> None:
        self.dice = Random(seed)
        self.plan = Plan.draw(self.dice)
        self.hosted = HostedShard(
            config=GroupConfig(
                group_initial_rebalance_delay_ms=self.plan.initial_delay_ms,
                group_min_session_timeout_ms=100,
            ),
            image=a_cluster(t=self.plan.partitions),
            make_shard=make_shard,
        )
        self.time = self.hosted.time
        self.ledger = Ledger()
        self.is_healed = False
        self.faults = 0
        self._asked = 0
        self._unanswered: dict[int, int] = {}
        self.members = [
            SimulatedMember(self, f"m{number}", self.dice) for number in range(self.plan.members)
        ]

    # -- the course of things ---------------------------------------------------------------

    def run(self) -> None:
        for member in self.members:
            self.time.call_later(self.dice.randint(0, 1500), member.start)
        self.time.call_later(self.plan.fault_ms, self._fault)
        self.time.call_later(self.plan.churn_ms, self._churn)
        while self.time.monotonic_ms() < TROUBLE_MS:
            self.time.advance(self.dice.randint(200, 1000))
            self.check_replay()
            self.check_progress()
        self._heal()
        self.check_rest()

    def _heal(self) -> None:
        self.is_healed = True
        partition = self.hosted.partition
        partition.fail_code = 0
        partition.holds_back = False
        partition.commit_all()
        if not any(member.is_alive for member in self.members):
            self.members[0].start()
        # The last change is that a dead member is missed; then there is one rebalance.
        wait_ms = SESSION_MS_MAX + COMMIT_TIMEOUT_MS + REBALANCE_MS_MAX + self.plan.initial_delay_ms
        self.time.advance(wait_ms + 40 * NETWORK_MS_MAX)

    def _churn(self) -> None:
        """Somebody comes, goes, dies or comes back."""
        if self.is_healed:
            return
        self.time.call_later(self.dice.randint(1, self.plan.churn_ms * 2), self._churn)
        member = self.dice.choice(self.members)
        if not member.is_alive:
            member.start()
            return
        if self.dice.random() < 0.25:
            self.time.call_later(self.dice.randint(0, LATE_MS_MAX), member.change_connection())
            return
        if self.dice.random() < 0.5:
            # Its process was only paused: what it had to say comes late.
            self.time.call_later(self.dice.randint(0, LATE_MS_MAX), member.last_words())
        if self.dice.random() < 0.3:
            member.leave()
        elif self.dice.random() < 0.5:
            member.die()
        else:
            member.die()
            member.start()

    def _fault(self) -> None:
        if self.is_healed:
            return
        self.faults += 1
        self.time.call_later(self.dice.randint(1, self.plan.fault_ms * 2), self._fault)
        partition = self.hosted.partition
        match self.dice.randint(0, 5):
            case 0:
                partition.fail_code = self.dice.choice((6, 7, 10, 19, 20, 56))
            case 1:
                partition.fail_code = 0
            case 2:
                partition.holds_back = True
            case 3:
                partition.holds_back = False
                partition.commit_all()
            case 4:
                self.hosted.restart()
                self.check_after_restart()
            case _:
                partition.cut_uncommitted()
                self.hosted.restart()
                self.check_after_restart()

    # -- the network ------------------------------------------------------------------------

    def ask(
        self,
        member: SimulatedMember,
        decide: Callable[[GroupShard], Outcome[Any]],
        told: Told | None,
    ) -> None:
        self._send(member, lambda: self.hosted.host.write(decide), told)

    def look(
        self, member: SimulatedMember, sight: Callable[[GroupShard], Fields], told: Told
    ) -> None:
        """A look at offsets: it must not miss what was acknowledged before it was asked for."""
        acknowledged = self.ledger.acknowledged()

        def checked(code: int, fields: Fields) -> None:
            if code == NONE:
                held = {
                    part["partition_index"]: part["committed_offset"]
                    for topic in fields["topics"]
                    for part in topic["partitions"]
                }
                for partition, offset in acknowledged.items():
                    if held.get(partition, -1) < offset:
                        raise Violation(f"G3: {member.name} reads {held}, acknowledged {offset}")
            told(code, fields)

        self._send(member, lambda: self.hosted.host.read(sight), checked)

    def ask_commit(
        self,
        member: SimulatedMember,
        decide: Callable[[GroupShard], Outcome[Any]],
        partition: int,
        offset: int,
        told: Told | None,
    ) -> None:
        """Acknowledged is what the broker answers, whether or not the answer arrives."""

        def write() -> Deferred[Any]:
            # The short way where there is one, as in the broker; see `handlers.commit_route`.
            answer: Deferred[Any] = Deferred()
            response = self.hosted.host.write_at_once(decide)
            if response is None:
                answer = self.hosted.host.write(decide)
            else:
                answer.resolve(response)
            answer.when_done(note)
            return answer

        def note(done: Deferred[Any]) -> None:
            try:
                result = done.result()["topics"][0]["partitions"][0]
            except ProtocolError:
                return
            if result["error_code"] == NONE:
                self.ledger.on_acknowledged(partition, offset, member.name)

        self._send(member, write, told)

    def _send(
        self, member: SimulatedMember, act: Callable[[], Deferred[Any]], told: Told | None
    ) -> None:
        life = member.life

        def arrive() -> None:
            self._asked += 1
            number = self._asked
            self._unanswered[number] = self.time.monotonic_ms()
            act().when_done(lambda done: self._answer(number, member, life, done, told))

        if self._is_lost():
            self._later_lost(member, life, told)
        else:
            # One connection: nothing overtakes what was sent before.
            now_ms = self.time.monotonic_ms()
            member.last_arrival_ms = max(member.last_arrival_ms, now_ms + self._latency_ms())
            self.time.call_later(member.last_arrival_ms - now_ms, arrive)

    def _answer(
        self,
        number: int,
        member: SimulatedMember,
        life: int,
        done: Deferred[Any],
        told: Told | None,
    ) -> None:
        del self._unanswered[number]
        try:
            fields = done.result()
            code = fields.get("error_code", NONE)
        except ProtocolError as refused:
            code, fields = refused.code, {}
        if self._is_lost():
            self._later_lost(member, life, told)
            return

        def deliver() -> None:
            if told is not None and member.is_alive and member.life == life:
                told(code, fields)

        self.time.call_later(self._latency_ms(), deliver)

    def _later_lost(self, member: SimulatedMember, life: int, told: Told | None) -> None:
        """The connection breaks; the client finds out and tries again."""

        def find_out() -> None:
            if told is not None and member.is_alive and member.life == life:
                told(-1, {})

        self.time.call_later(500, find_out)

    def _latency_ms(self) -> int:
        return self.dice.randint(0, NETWORK_MS_MAX)

    def _is_lost(self) -> bool:
        return not self.is_healed and self.dice.random() < self.plan.loss

    def dawdle_ms(self) -> int:
        if self.is_healed or self.dice.random() >= self.plan.dawdle:
            return 0
        return self.dice.randint(0, REBALANCE_MS_MAX * 2)

    def dozes(self) -> bool:
        return not self.is_healed and self.dice.random() < self.plan.doze

    def assign(self, member_ids: list[str]) -> dict[str, bytes]:
        """By turns over the sorted ids, as a leader would."""
        ids = sorted(member_ids)
        shares: dict[str, list[str]] = {member_id: [] for member_id in ids}
        for partition in range(self.plan.partitions):
            shares[ids[partition % len(ids)]].append(str(partition))
        return {member_id: ",".join(parts).encode() for member_id, parts in shares.items()}

    # -- what has to hold -------------------------------------------------------------------

    def check_after_restart(self) -> None:
        held = self.hosted.shard.offsets.of_group(GROUP).get("t", {})
        for partition in self.ledger.acknowledged():
            commit = held.get(partition)
            offset = -1 if commit is None else commit.offset
            self.ledger.on_seen(partition, offset, "the restarted coordinator")

    def check_replay(self) -> None:
        """Another that reads the log now would know the same."""
        live, other = digest(self.hosted.shard), digest(self.hosted.replayed())
        if live != other:
            raise Violation(f"replay: live {live}, from the log {other}")
        held = self.hosted.shard.context.memory.held
        counted = 0
        for group in self.hosted.shard.groups.values():
            if isinstance(group, ClassicGroup):
                counted += sum(member.size() for member in group.members.values())
                counted += PENDING_BYTES * len(group.pending)
        if held != counted:
            raise Violation(f"M1: {counted} bytes are in use, {held} are counted")

    def check_progress(self) -> None:
        """G4 on the way: a join phase ends with the rebalance time-out, a question is answered."""
        group = self.hosted.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.state == PREPARING:
            allowed_ms = REBALANCE_MS_MAX + self.plan.initial_delay_ms
            if self.plan.static_share:
                # They keep their place until their session ends; then it is seen at the next look.
                allowed_ms += SESSION_MS_MAX + REBALANCE_MS_MAX
            since_ms = self.time.wall_ms() - group.since_ms
            if since_ms > allowed_ms:
                raise Violation(f"G4: a join phase lasts for {since_ms} ms")
        oldest_ms = min(self._unanswered.values(), default=self.time.monotonic_ms())
        if self.time.monotonic_ms() - oldest_ms > ANSWER_MS_MAX:
            raise Violation("M3: a question is not answered")

    def check_rest(self) -> None:
        """G4: within one rebalance time-out after the last change the group is stable."""
        group = self.hosted.shard.groups.get(GROUP)
        alive = [member for member in self.members if member.is_alive]
        if not isinstance(group, ClassicGroup) or group.state != STABLE:
            state = group.state_name() if group is not None else "gone"
            raise Violation(f"G4: the group is {state}, {len(alive)} members are alive")
        owned = sorted(partition for member in alive for partition in member.owned)
        if owned != list(range(self.plan.partitions)):
            raise Violation(f"G4: of {self.plan.partitions} partitions {owned} are read")
        if {member.member_id for member in alive} != set(group.members):
            raise Violation(f"G4: {len(alive)} are alive, {len(group.members)} are members")


def digest(shard: GroupShard) -> dict[str, Any]:
    """What the log holds of a shard."""
    groups = {
        group_id: group.stored
        for group_id, group in shard.groups.items()
        if isinstance(group, ClassicGroup) and group.stored is not None
    }
    offsets = {
        (group_id, topic, partition): commit
        for group_id, topics in shard.offsets.by_group.items()
        for topic, commits in topics.items()
        for partition, commit in commits.items()
    }
    return {"groups": groups, "offsets": offsets}
