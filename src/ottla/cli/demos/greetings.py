"""The story of "Hello, world!" on the topic Greetings: produced, stored, consumed, then trouble.

Everything is real: members are processes, the one that dies dies of SIGKILL, and the figures count
what the processes showed. Should a group ever lose or repeat what its way of committing forbids,
the story ends as a Failure.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.demos.member import MemberProcess
from ottla.cli.demos.tally import Figures, Tally
from ottla.cli.demos.teller import Teller
from ottla.cli.failure import Failure
from ottla.cli.log_dump import Batch, dump
from ottla.cli.log_sizes import held_replicas
from ottla.cli.model import NewTopic, RecordToSend, SenderSettings
from ottla.cli.output import Size

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

TOPIC = "Greetings"
HELLO = "Hello, world!"
MORE = ("Ahoj, světe!", "Hallo, Welt!")
FOR_THE_CHOIR = ("Bonjour, le monde !", "Hola, mundo!", "Ciao, mondo!", "Salut, lume!")
GROUPS = ("readers", "careful", "hasty", "kitchen", "office", "choir")
FLUSH_SECONDS_MAX = 10.0
STORY_SECONDS_MAX = 120.0
MEMBER_SETTINGS = {
    # A rebalance is heard of by the next heartbeat.
    "heartbeat.interval.ms": "200",
    # So that a member gives up only what another one gets.
    "partition.assignment.strategy": "cooperative-sticky",
}


@dataclass(slots=True)
class Stage:
    """Where the story plays.

    `directory`: for the members' settings. `session_timeout_ms`: how long a group waits for a
    member that is going to be killed. `data`: the broker's, where it is ours to look into.
    """

    connection: Connection
    bootstrap: str
    directory: Path
    client_settings: Mapping[str, str]
    session_timeout_ms: int
    data: Path | None


class Greetings:
    def __init__(self, teller: Teller, stage: Stage) -> None:
        self._teller = teller
        self._stage = stage
        self._tally = Tally()
        self._members: list[MemberProcess] = []
        self._heard: Counter[int] = Counter()
        self._settings = self._write_settings("member", MEMBER_SETTINGS)
        # Only for those who die: a busy machine must not take the others for dead.
        session = {"session.timeout.ms": str(stage.session_timeout_ms)}
        self._mortal_settings = self._write_settings("mortal", MEMBER_SETTINGS | session)
        # Values in each partition, by offset.
        self._records: dict[int, list[str]] = {0: []}
        self._start_s = time.monotonic()

    def tell(self) -> Figures:
        chapters = [
            ("Produced", self._produced),
            ("Stored", self._stored),
            ("Consumed by a group, which remembers", self._consumed),
            ("Killed before its commit: delivered twice", self._killed_before_commit),
            ("Committed first, then killed: never twice", self._killed_after_commit),
            ("Two groups: each gets everything", self._two_groups),
            ("A second member joins: the partitions are shared", self._rebalance),
        ]
        for number, (title, chapter) in enumerate(chapters, 1):
            self._teller.chapter(number, title)
            chapter()
        figures = self._tally.figures()
        self._teller.last_line(
            f"{TOPIC}: {figures.groups} groups; delivered once {figures.once},"
            f" twice {figures.twice}, never {figures.never};"
            f" {time.monotonic() - self._start_s:.1f} s"
        )
        return figures

    def close(self) -> None:
        for member in self._members:
            member.close()

    # ----------------------------------------------------------------------------- the chapters

    def _produced(self) -> None:
        self._teller.command(f"ottla topic create {TOPIC} --partitions 1")
        self._stage.connection.create_topic(NewTopic(TOPIC, 1))
        self._stage.connection.refresh()
        self._teller.command(f"echo {shlex.quote(HELLO)} | ottla produce {TOPIC}")
        self._produce((0, HELLO))
        self._teller.verdict(f"{TOPIC}-0 took it at offset {self._latest() - 1}")

    def _stored(self) -> None:
        if self._stage.data is None:
            places = self._stage.connection.places([TOPIC])
            leader = places[0].partitions[0].leader
            found = held_replicas(self._stage.connection, places).get((TOPIC, 0), {})
            replica = None if leader is None else found.get(leader)
            held = (
                "an unknown number of bytes" if replica is None else str(Size(replica.size_bytes))
            )
            self._teller.command(f"ottla topic describe {TOPIC}")
            self._teller.verdict(f"the leader of {TOPIC}-0 holds {held}")
            return
        path = self._stage.data / f"{TOPIC}-0" / f"{0:020d}.log"
        self._teller.command(f"ottla log dump --records {path.relative_to(self._stage.data)}")
        self._teller.bytes_(path.read_bytes())
        (batch,) = [found for found in dump(path, with_records=False) if isinstance(found, Batch)]
        crc = "good" if batch.crc_ok else "WRONG"
        self._teller.verdict(
            f"one batch of {batch.size_bytes} bytes from offset {batch.base_offset},"
            f" CRC 0x{batch.crc:08x} is {crc}: the same bytes that the client sent"
        )

    def _consumed(self) -> None:
        first = self._run_member("first", "readers")
        self._count("readers", first)
        again = self._run_member("again", "readers")
        self._count("readers", again)
        self._show_log("readers")
        self._teller.verdict("the second run got nothing: the group goes on where it committed")

    def _killed_before_commit(self) -> None:
        self._teller.command("ottla produce Greetings --file more-greetings.txt")
        self._produce(*((0, value) for value in MORE))
        counts = self._kill_and_restart("careful", "after")
        if not all(counts.values()):
            raise Failure("a group that commits after it has shown a record skipped one")
        twice = [repr(value) for value, count in counts.items() if count > 1]
        self._teller.verdict(
            f"at least once: nothing was skipped; came twice: {', '.join(twice) or 'nothing'}"
        )

    def _killed_after_commit(self) -> None:
        counts = self._kill_and_restart("hasty", "before")
        if max(counts.values()) > 1:
            raise Failure("a group that commits before it shows a record showed one twice")
        never = [repr(value) for value, count in counts.items() if count == 0]
        self._teller.verdict(
            f"at most once: nothing came twice; never came: {', '.join(never) or 'nothing'}"
        )

    def _two_groups(self) -> None:
        pair = [self._start_member(group, group) for group in ("kitchen", "office")]
        for member in pair:
            member.wait_for_end()
            self._hear(member)
            self._count(member.name, member)
        self._show_log("kitchen", "office")
        self._teller.verdict("each has its own place in the log; the records are stored once")

    def _rebalance(self) -> None:
        self._teller.command(f"ottla topic alter {TOPIC} --partitions 4")
        self._stage.connection.add_partitions(TOPIC, 4)
        self._stage.connection.refresh()
        self._records |= {partition: [] for partition in range(1, 4)}
        anna = self._start_member("anna", "choir", ["--follow"])
        self._wait_for_shares((anna, 4))
        there = sum(map(len, self._records.values()))
        anna.wait_until(lambda: len(anna.deliveries) == there, "read what there is")
        self._hear(anna)
        bert = self._start_member("bert", "choir", ["--follow"])
        self._wait_for_shares((anna, 2), (bert, 2))
        self._hear(anna, bert)
        self._teller.say(f"{len(FOR_THE_CHOIR)} more greetings, one for each partition")
        self._produce(*enumerate(FOR_THE_CHOIR))
        there = sum(map(len, self._records.values()))
        while len(anna.deliveries) + len(bert.deliveries) < there:
            for member in (anna, bert):
                member.catch_up(0.1)
            self._check_time()
        self._hear(anna, bert)
        self._teller.say("kill -TERM: bert commits, says goodbye and goes")
        bert.stop()
        self._wait_for_shares((anna, 4))
        self._hear(bert, anna)
        anna.stop()
        self._hear(anna)
        self._count("choir", anna, bert)
        self._teller.verdict("every partition has one owner at a time, and none is left alone")

    # ------------------------------------------------------------------------------- its scenes

    def _kill_and_restart(self, group: str, commit: str) -> dict[str, int]:
        """How often each value came."""
        way = ("--commit", commit, "--commit-every", str(len(self._records[0])))
        first = self._start_member("first", group, (*way, "--rate", "0.1", "--follow"), mortal=True)
        first.wait_until(lambda: bool(first.deliveries), "get a record")
        first.kill()
        self._hear(first)
        self._teller.say("kill -9, in the middle of its work")
        self._show_log(group)
        second = self._start_member("second", group, way)
        patience_s = self._stage.session_timeout_ms / 1_000
        with self._teller.waiting(
            f"after {patience_s:g} s of silence its partition goes to the next"
        ):
            second.wait_for_end()
        self._hear(second)
        self._count(group, first, second)
        counts = dict.fromkeys(self._records[0], 0)
        for delivery in (*first.deliveries, *second.deliveries):
            counts[delivery.value] += 1
        return counts

    def _run_member(self, name: str, group: str) -> MemberProcess:
        member = self._start_member(name, group)
        member.wait_for_end()
        self._hear(member)
        return member

    def _write_settings(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self._stage.directory / f"{name}.properties"
        # What people gave us may hold a password.
        path.touch(mode=0o600)
        pairs = {**self._stage.client_settings, **settings}.items()
        path.write_text("".join(f"{name}={value}\n" for name, value in pairs))
        return path

    def _start_member(
        self, name: str, group: str, options: Sequence[str] = (), *, mortal: bool = False
    ) -> MemberProcess:
        arguments = [TOPIC, "--group", group, *options]
        self._teller.command(shlex.join(["ottla", "consume", *arguments]))
        where = ["-b", self._stage.bootstrap]
        settings = self._mortal_settings if mortal else self._settings
        member = MemberProcess(name, [*arguments, *where, "--command-config", str(settings)])
        self._members.append(member)
        return member

    def _hear(self, *members: MemberProcess) -> None:
        """Tells what they have said since the last time."""
        for member in members:
            for line in member.said[self._heard[id(member)] :]:
                self._teller.quote(member.name, line)
            self._heard[id(member)] = len(member.said)

    def _wait_for_shares(self, *shares: tuple[MemberProcess, int]) -> None:
        while any(len(member.owned) != share for member, share in shares):
            for member, _ in shares:
                member.catch_up(0.1)
            self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() - self._start_s > STORY_SECONDS_MAX:
            raise Failure("the demo does not come to its end")

    def _count(self, group: str, *members: MemberProcess) -> None:
        self._tally.expect(
            group,
            [
                (partition, offset)
                for partition, values in self._records.items()
                for offset in range(len(values))
            ],
        )
        for member in members:
            self._tally.add(group, member.deliveries)

    def _produce(self, *records: tuple[int, str]) -> None:
        sender = self._stage.connection.sender(TOPIC, SenderSettings())
        for partition, value in records:
            sender.send(RecordToSend(None, value.encode(), partition=partition))
            self._records[partition].append(value)
        deadline = time.monotonic() + FLUSH_SECONDS_MAX
        while sender.flush_step() and time.monotonic() < deadline:
            pass
        if sender.delivered() != len(records):
            raise Failure(f"greetings were not delivered: {sender.first_failure or 'no answer'}")

    def _latest(self) -> int:
        found = self._stage.connection.offsets({(TOPIC, 0): "latest"})[TOPIC, 0]
        return 0 if found is None else found.offset

    def _show_log(self, *groups: str) -> None:
        committed = self._stage.connection.group_admin().committed(groups)
        places = {group: committed[group].get((TOPIC, 0), 0) for group in groups}
        self._teller.log(f"{TOPIC}-0", self._records[0], places)
