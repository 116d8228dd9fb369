"""The story of a copy job that is killed again and again: without transactions, and with.

Everything is real: each job is a process that dies of SIGKILL at a random moment, and the figures
count the records of the topics. Should a way of copying ever do what it must not (lose with the
commit after, repeat with the commit before, either with transactions), the story ends as a Failure.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.cli.demos.copy_job import AFTER, BEFORE, TRANSACTIONS
from ottla.cli.demos.job_process import JobProcess
from ottla.cli.demos.teller import Teller
from ottla.cli.explain_facts import Inquiry
from ottla.cli.explain_words import lines_of
from ottla.cli.failure import Failure
from ottla.client import Admin, Consumer, Producer
from ottla.client.admin_values import LATEST
from ottla.client.fetch_records import Record

PARTITIONS = 2
POLL_S = 0.5
READ_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Figures:
    kills: int
    twice: int
    lost: int


@dataclass(slots=True)
class Scene:
    """`prefix`: of all that the story makes. `config`: a file of client settings, or `-`."""

    admin: Admin
    settings: Mapping[str, Any]
    bootstrap: str
    config: str
    prefix: str
    kills: int
    records: int

    @property
    def source(self) -> str:
        return f"{self.prefix}-source"

    def target(self, mode: str) -> str:
        return f"{self.prefix}-{mode}"

    def clean_up(self) -> None:
        """For a cluster that goes on; what the story did not come to does not exist."""
        modes = (AFTER, BEFORE, TRANSACTIONS)
        self.admin.delete_groups([self.target(mode) for mode in modes])
        self.admin.delete_topics([self.source, *(self.target(mode) for mode in modes)])


class ExactlyOnce:
    def __init__(self, teller: Teller, scene: Scene) -> None:
        self._teller = teller
        self._scene = scene
        # Chance decides when a job dies; the story is true whenever that is.
        self._dice = random.Random()
        self._ends: list[int] = []
        self._job: JobProcess | None = None
        self._start_s = time.monotonic()

    def tell(self) -> dict[str, Figures]:
        chapters = [
            ("What is to be copied", self._write_source),
            ("Written, then committed: at least once", lambda: self._copy(AFTER)),
            ("Committed, then written: at most once", lambda: self._copy(BEFORE)),
            ("Both in one transaction: exactly once", lambda: self._copy(TRANSACTIONS)),
            ("What became of the rest", self._explain_the_rest),
        ]
        figures: dict[str, Figures] = {}
        for number, (title, chapter) in enumerate(chapters, 1):
            self._teller.chapter(number, title)
            figures |= chapter() or {}
        self._teller.last_line(
            f"Exactly once: {self._scene.records} records,"
            f" {sum(one.kills for one in figures.values())} kills;"
            f" {_told('commit after', figures[AFTER])};"
            f" {_told('commit before', figures[BEFORE])};"
            f" {_told('transactions', figures[TRANSACTIONS])};"
            f" {time.monotonic() - self._start_s:.1f} s"
        )
        return figures

    def close(self) -> None:
        if self._job is not None:
            self._job.close()

    # ----------------------------------------------------------------------------- the chapters

    def _write_source(self) -> None:
        scene = self._scene
        for topic in (scene.source, *map(scene.target, (AFTER, BEFORE, TRANSACTIONS))):
            scene.admin.create_topic(topic, partitions=PARTITIONS)
        with Producer(scene.settings) as producer:
            for number in range(scene.records):
                producer.send(scene.source, str(number).encode(), partition=number % PARTITIONS)
            producer.flush()
        self._ends = [end for _, end in sorted(self._ends_of(scene.source).items())]
        self._teller.verdict(f"{scene.source} has {scene.records} records, each another number")

    def _copy(self, mode: str) -> dict[str, Figures]:
        scene = self._scene
        kills = 0
        self._teller.say(f"a job copies {scene.source} to {scene.target(mode)}")
        with self._teller.waiting(f"it is killed at {scene.kills} random moments"):
            for _ in range(scene.kills):
                kills += self._start(mode).kill_at_random(self._dice)
            self._start(mode).wait_for_end()
        copied = Counter(int(one.value) for one in self._read(mode, committed=True))
        twice = sum(count > 1 for count in copied.values())
        lost = scene.records - len(copied)
        self._teller.verdict(
            f"of {scene.records} records {twice} came more than once, {lost} never"
        )
        if (lost and mode != BEFORE) or (twice and mode != AFTER):
            raise Failure(f"the way {mode!r} must not do that")
        return {mode: Figures(kills, twice, lost)}

    def _explain_the_rest(self) -> None:
        scene = self._scene
        target = scene.target(TRANSACTIONS)
        seen = {(one.partition, one.offset) for one in self._read(TRANSACTIONS, committed=True)}
        rest = [
            one
            for one in self._read(TRANSACTIONS, committed=False)
            if (one.partition, one.offset) not in seen
        ]
        if not rest:
            self._teller.verdict("no job died within a transaction: nothing was aborted")
            return
        self._teller.verdict(
            f"{len(rest)} more stand in {target}: their transactions died with their jobs"
        )
        one = rest[0]
        self._teller.command(f"ottla explain {target} {one.partition} {one.offset}")
        document = Inquiry(scene.admin, target, one.partition, one.offset).answer()
        for line in lines_of(document):
            self._teller.say(line)

    # --------------------------------------------------------------------------------- the means

    def _start(self, mode: str) -> JobProcess:
        scene = self._scene
        target = scene.target(mode)
        ends = map(str, self._ends)
        self._job = JobProcess(
            [scene.bootstrap, scene.config, scene.source, target, target, mode, *ends]
        )
        return self._job

    def _ends_of(self, topic: str) -> dict[tuple[str, int], int]:
        wanted = dict.fromkeys([(topic, index) for index in range(PARTITIONS)], LATEST)
        found = self._scene.admin.list_offsets(wanted)
        return {place: 0 if one is None else one.offset for place, one in found.items()}

    def _read(self, mode: str, *, committed: bool) -> list[Record]:
        """All of a target, to its end."""
        ends = self._ends_of(self._scene.target(mode))
        isolation = "read_committed" if committed else "read_uncommitted"
        records: list[Record] = []
        deadline_s = time.monotonic() + READ_SECONDS_MAX
        with Consumer(
            self._scene.settings, isolation_level=isolation, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(list(ends))
            while any(consumer.position(place) < end for place, end in ends.items()):
                records += consumer.poll(POLL_S)
                if time.monotonic() > deadline_s:
                    raise Failure(f"{self._scene.target(mode)} cannot be read to its end")
        return records


def _told(name: str, figures: Figures) -> str:
    return f"{name}: {figures.twice} twice, {figures.lost} lost"
