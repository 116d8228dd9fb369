"""A replica that moves between two log dirs over a recording file system, and what must hold after
each crash.

`MovingLife` does what `crash_world.Workload` does, with the real keepers of a broker's logs: a pool
whose work is done in any order, with appends, truncations and retention in between, also in the
middle of a piece that is being copied. Now and then somebody asks for the other log dir. `judge`
starts a broker on what a crash left: the partition must be there once, with all that it had
promised, and whatever was on its way must arrive or be gone.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.log import file_names
from ottla.log.file_cache import FileCache
from ottla.log.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.log.relocation import Piece
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.replication.partition import Partition
from ottla.runtime.flusher import Flusher
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.log_upkeep import LogUpkeep
from ottla.runtime.replica_mover import ReplicaMover
from sim.groups.virtual import VirtualTime
from tests.chaos.crash_world import (
    CONFIG,
    KEY,
    TOPIC,
    Moment,
    Violation,
    Workload,
    check_bounds,
    check_epochs,
    check_indexes,
    check_producers,
    common_history,
    read_back,
    require,
)
from tests.chaos.memory_files import DiskImage, MemoryFiles

R = TypeVar("R")
DIRS = ("/one", "/two")
ME = 1
TOPIC_ID = uuid.UUID(int=7)
DAY_MS = 86_400_000
REST_STEPS_MAX = 10_000


class Pool:
    """Threads that may finish in any order."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.jobs: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        done: Deferred[R] = Deferred()
        self.jobs.append((done, lambda: work(*arguments)))
        return done

    def work(self) -> None:
        done, job = self.jobs.pop(self._chance.randrange(len(self.jobs)))
        try:
            value = job()
        except (OttlaError, OSError) as failure:
            done.fail(failure)
        else:
            done.resolve(value)


class Broker:
    """One life of it, with one partition in one of two log dirs."""

    def __init__(
        self,
        files: MemoryFiles,
        chance: random.Random,
        dirs: tuple[str, ...] = DIRS,
        **settings: str,
    ) -> None:
        self.time = VirtualTime()
        self.pool = Pool(chance)
        self.dirs = [LogDir.open(files, path) for path in dirs]
        for log_dir in self.dirs:
            log_dir.claim(cluster_id="cluster", node_id=ME)
        common: dict[str, Any] = {
            "files": files,
            "clock": self.time,
            "timers": self.time,
            "pool": self.pool,
        }
        self.config = BrokerConfig(settings)
        self.replicas = LocalReplicas(
            broker_id=ME,
            file_cache=FileCache(30),
            log_dirs=self.dirs,
            config=self.config,
            **common,
        )
        self._with_small_segments()
        self.flusher = Flusher(self.pool, self.replicas.storage_failed)
        self.replicas.on_roll = self.flusher.on_roll
        common |= {
            "replicas": self.replicas,
            "flusher": self.flusher,
            "config": lambda: self.config,
        }
        self.upkeep = LogUpkeep(**common)
        self.replicas.forget = self.upkeep.forget
        self.mover = ReplicaMover(upkeep=self.upkeep, **common)
        self.replicas.moving = self.mover
        self.upkeep.arriving = self.mover.arriving
        self.wait_for(self.replicas.load(an_image()))

    def _with_small_segments(self) -> None:
        loader: Any = self.replicas._loader
        order = loader.order

        def small(*arguments: Any) -> Any:
            made = order(*arguments)
            made.config = CONFIG
            return made

        loader.order = small

    def begin(self) -> None:
        for log_dir in self.dirs:
            log_dir.begin()
            for doomed in log_dir.doomed_directories():
                self.replicas.delete_tree(doomed)
        self.mover.start()

    @property
    def partition(self) -> Partition:
        found = self.replicas.find(*KEY)
        assert found is not None
        return found

    @property
    def log(self) -> PartitionLog:
        held = self.partition.log
        require(held is not None, "L6: the partition is offline")
        assert held is not None
        return held

    def log_dir(self) -> LogDir:
        return self.replicas.log_dir_of(self.partition.log_dir)

    def wait_for(self, done: Deferred[None]) -> None:
        while not done.done:
            require(bool(self.pool.jobs), "somebody waits, and nobody works")
            self.pool.work()
        done.result()

    def rest(self) -> None:
        """Until nothing is left to do."""
        for _ in range(REST_STEPS_MAX):
            if not (self.pool.jobs or self.mover._moves):
                break
            self.live_on(1)
        else:
            raise Violation("a move never comes to its end")
        self.time.advance(DAY_MS)
        while self.pool.jobs:
            self.pool.work()

    def live_on(self, jobs: int) -> None:
        for _ in range(jobs):
            if self.pool.jobs:
                self.pool.work()
            self.time.advance(1)

    def die(self) -> None:
        for _, held in self.replicas.online():
            held.abandon()
        for log_dir in self.dirs:
            log_dir.release()


def an_image() -> MetadataImage:
    state = PartitionState(ME, 0, (ME,), (ME,), 0)
    topic = TopicImage(TOPIC, TOPIC_ID, {0: state}, {})
    return MetadataImage(topics={TOPIC: topic}, topic_names_by_id={TOPIC_ID: TOPIC})


class MovingLife(Workload):
    """One run. What is promised is noted when it is promised, whoever asked for it."""

    moves = 0
    broker: Broker
    _busy = False

    def run(self, actions: int) -> None:
        self._open()
        for _ in range(actions):
            self.chance.choices(
                (
                    self.append_some,
                    self.flush,
                    self.retain,
                    self.delete_records,
                    self.truncate,
                    self.restart_cleanly,
                    self.restart_killed,
                    self.new_epoch,
                    self.move,
                    self.work,
                ),
                weights=(*self.weights, 8, 90),
            )[0]()

    def _open(self) -> None:
        self.broker = Broker(self.files, self.chance)
        self.broker.begin()
        self.log = self.broker.log
        self.log.on_high_watermark(self.log.log_end_offset)
        self._reached("open")

    def meanwhile(self) -> None:
        """What the loop does while a thread copies."""
        if self._busy or self.chance.random() < 0.5:
            return
        self._busy = True
        self.chance.choices(
            (self.append_some, self.retain, self.truncate, self.delete_records),
            weights=(6, 2, 2, 2),
        )[0]()
        self._busy = False

    # -- actions ------------------------------------------------------------------------------

    def move(self) -> None:
        partition = self.broker.partition
        where = partition.log_dir
        wish = where if self.chance.random() < 0.1 else next(one for one in DIRS if one != where)
        assert self.broker.mover.move(partition, wish)
        self.moves += 1
        self._reached("move")

    def work(self) -> None:
        if self.broker.pool.jobs:
            self.broker.pool.work()
        self.broker.time.advance(self.chance.choice((0, 1, 1_000)))
        self._reached("work")

    def flush(self) -> None:
        offset, history = self.log.log_end_offset, self.moment.history

        def synced(_: Deferred[None]) -> None:
            # If it was not cut meanwhile.
            if self.moment.history[: len(history)] == history:
                self._reached("flush", flushed=max(self.moment.flushed, offset))

        self.broker.flusher.flush(self.log).when_done(synced)

    def _checkpoint(self) -> None:
        """After a truncation, before anything else is appended."""
        self._wait_for(self.broker.upkeep.save_recovery_points(self.broker.log_dir().path))
        self._reached("checkpoint")

    def _checkpoint_start(self) -> None:
        start = self.log.log_start_offset
        self._wait_for(self.broker.upkeep.save_all(self.broker.log_dir()))
        self._reached("log start", promised_start=start)

    def _wait_for(self, done: Deferred[None]) -> None:
        busy, self._busy = self._busy, True
        self.broker.wait_for(done)
        self._busy = busy

    def retain(self) -> None:
        self.log.apply_retention(1_000_000, self.log.log_end_offset)
        start = self.log.log_start_offset
        self._reached("retention", log_start=start)
        self._checkpoint_start()
        self._remove(self.log.delete_below(start))

    def restart_cleanly(self) -> None:
        broker = self.broker
        broker.mover.stop()
        while broker.pool.jobs:
            broker.pool.work()
        self.log.close()
        self._reached("close", flushed=self.log.log_end_offset)
        for log_dir in broker.dirs:
            broker.upkeep.checkpoint_all_now(log_dir)
        self._reached("checkpoints", promised_start=self.log.log_start_offset)
        for log_dir in broker.dirs:
            log_dir.mark_clean()
            log_dir.release()
        self._open()

    def restart_killed(self) -> None:
        self.broker.die()
        self._open()

    def finish(self) -> None:
        """All that was asked for is done; nothing was lost on the way."""
        self._busy = True
        self.broker.rest()
        check_once(self.files)
        check_snapshots(self.files, self.log)
        self.broker.wait_for(self.broker.flusher.flush(self.log))
        batches = read_back(self.log)
        common_history(batches, self.log, self.moment, self.moment)


def copying_takes_time(life: MovingLife) -> Callable[[Piece, Any], bool]:
    real = Piece._copy

    def copied(piece: Piece, each: Any) -> bool:
        # Not on the loop itself, where nothing comes in between.
        if piece.is_synced:
            life.meanwhile()
        return real(piece, each)

    return copied


# -- the judge ------------------------------------------------------------------------------------


def check_once(files: MemoryFiles) -> None:
    names = [name for path in DIRS for name in files.list_dir(path)]
    require(names.count(f"{TOPIC}-0") == 1, f"the partition is there once: {names}")
    on_their_way = [name for name in names if name.endswith("-future")]
    require(not on_their_way, f"nothing is left on its way: {on_their_way}")


def check_snapshots(files: MemoryFiles, log: PartitionLog) -> None:
    """Those that the log knows of are there: a truncation goes back to the newest of them."""
    for offset in log.snapshots()[1]:
        path = file_names.segment_path(log.directory, offset, file_names.SNAPSHOT)
        require(files.exists(path), f"P1: {path} is missing")


def judge(
    files: MemoryFiles, before: Moment, after: Moment, chance: random.Random, killed: bool
) -> None:
    """`files` is what a crash left between `before` and `after`."""
    broker = Broker(files, chance)
    log = broker.log
    batches = read_back(log)
    history = common_history(batches, log, before, after)
    check_bounds(log, before, after, killed=killed)
    check_epochs(log, batches)
    check_indexes(log)
    check_producers(log, history)
    broker.begin()
    broker.rest()
    check_once(files)
    check_snapshots(files, log)
    broker.wait_for(broker.flusher.flush(log))
    require(broker.log is log, "it stays the same log on its way")
    require(read_back(log) == batches, "what was on its way has brought something else")
    check_indexes(log)
    check_producers(log, history)
    broker.die()


def judge_states(life: MovingLife, chance: random.Random, count: int) -> int:
    journal = life.files.journal
    image = DiskImage()
    at = step = judged = 0
    renames = [at for at, operation in enumerate(journal) if operation[0] == "rename_dir"]
    for moment in sorted(draw_moment(len(journal), renames, chance) for _ in range(count)):
        while at < moment:
            image.apply(journal[at])
            at += 1
        while step < len(life.steps) and life.steps[step].at <= at:
            step += 1
        before = life.steps[step - 1].moment if step else Moment()
        after = life.steps[step].moment if step < len(life.steps) else before
        judged += judge_crash(image, chance, before, after)
    return judged


def draw_moment(length: int, renames: list[int], chance: random.Random) -> int:
    """Any, or more often one about the time when a directory got another name."""
    if not renames or chance.random() < 0.3:
        return chance.randint(0, length)
    return min(max(chance.choice(renames) + chance.randint(-10, 25), 0), length)


def judge_crash(image: DiskImage, chance: random.Random, before: Moment, after: Moment) -> int:
    if chance.random() < 0.3:
        return judge_two_crashes(image.clone(), chance, before, after)
    killed = chance.random() < 0.4
    files = image.after_kill("boot-0") if killed else image.after_power_cut(chance, "boot-1")
    judge(files, before, after, chance, killed)
    return 1


def judge_two_crashes(
    image: DiskImage, chance: random.Random, before: Moment, after: Moment
) -> int:
    """It is killed or loses power, and again in its next start, or in what it does then."""
    killed = chance.random() < 0.6
    files = image.revived("boot-0")
    if not killed:
        left = image.after_power_cut(chance, "boot-1")
        image = DiskImage.of(left)
        files = image.revived("boot-1")
    broker = Broker(files, chance)
    broker.begin()
    broker.live_on(chance.randint(0, 30))
    broker.die()
    for operation in files.journal[: chance.randint(0, len(files.journal))]:
        image.apply(operation)
    killed_again = killed and chance.random() < 0.5
    boot = "boot-0" if killed_again else "boot-2"
    again = image.after_kill(boot) if killed_again else image.after_power_cut(chance, boot)
    judge(again, before, after, chance, killed_again)
    return 1
