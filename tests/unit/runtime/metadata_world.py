"""Brokers as far as metadata goes, in simulated time: real drivers over one ensemble in memory.

Every call of a store, every delivery and every timer is an event with a random delay, so that the
orders that matter come up. What a broker does about its image is only taken note of.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError
from ottla.metadata import nodes
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import NewTopic, TopicDefaults, decide_create_topics
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.memory_store import MemoryEnsemble, MemoryStore
from ottla.metadata.store import Snapshot, StoreUnavailable
from ottla.replication.effects import InSyncProposal, Outcome
from ottla.runtime.in_sync_writer import InSyncWriter
from ottla.runtime.metadata_driver import MetadataDriver
from tests.unit.metadata.builders import Uuids

R = TypeVar("R")
Callback = Callable[[], None]


class Event:
    """One thing to happen; also a timer of the port."""

    __slots__ = ("_what",)

    def __init__(self, what: Callback) -> None:
        self._what: Callback | None = what

    def cancel(self) -> None:
        self._what = None

    def happen(self) -> None:
        what, self._what = self._what, None
        if what is not None:
            what()


class Time:
    """The heap of events, and clock, timers and chance of everybody."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._order = 0

    def monotonic_ms(self) -> int:
        return int(self.now_ms)

    wall_ms = monotonic_ms

    def call_later(self, delay_ms: float, callback: Callback) -> Event:
        event = Event(callback)
        self._order += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._order, event))
        return event

    def uniform(self, low: float, high: float) -> float:
        return self.chance.uniform(low, high)

    def random_bytes(self, count: int) -> bytes:
        return self.chance.randbytes(count)

    def soon(self, callback: Callback) -> None:
        """After a few milliseconds, never before what was put off to then earlier."""
        self.call_later(self.chance.choice((0.1, 1, 1, 5)), callback)

    def run(self, for_ms: float) -> None:
        until_ms = self.now_ms + for_ms
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._heap)
            event.happen()
        self.now_ms = until_ms

    def run_until(self, holds: Callable[[], bool], limit_ms: float = 120_000) -> None:
        until_ms = self.now_ms + limit_ms
        while not holds():
            assert self._heap, "nothing happens any more"
            assert self._heap[0][0] <= until_ms, "it does not come to hold"
            self.now_ms, _, event = heapq.heappop(self._heap)
            event.happen()


class Member:
    """One broker. `alive` False: nothing of it happens any more."""

    def __init__(self, world: World, broker_id: int, *, unclean: bool = False) -> None:
        self.world = world
        self.broker_id = broker_id
        self.unclean = unclean
        self.alive = True
        self.paused: list[Callback] | None = None
        self.hears_at_once = False
        """Also while a call of its store is under way, as threads do."""
        self.history: list[MetadataImage] = []
        self.store = MemoryStore(world.ensemble, self.deliver)
        self._posts: list[Callback] = []
        self.driver = MetadataDriver(
            broker_id=broker_id,
            config=world.config,
            store=self.store,
            is_cluster=True,
            pool=self,
            timers=self,
            clock=world.time,
            random=world.time,
            post=self.post,
            registration=self.registration,
            publish=self.publish,
        )
        self.in_sync = InSyncWriter(
            broker_id=broker_id,
            source=self.driver,
            store=self.store,
            lane=self.driver.lane,
            post=self.post,
        )
        self.is_serving = False

    # -- the ports --------------------------------------------------------------------------

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        answer: Deferred[R] = Deferred()

        def job() -> None:
            outcome: Deferred[R] = Deferred()
            try:
                outcome.resolve(work(*arguments))
            except OttlaError as error:
                outcome.fail(error)
            self.post(lambda: outcome.tell(answer))

        self.world.time.soon(self._guarded(job))
        return answer

    def call_later(self, delay_ms: float, callback: Callback) -> Event:
        return self.world.time.call_later(delay_ms, self._guarded(callback))

    def post(self, callback: Callback) -> None:
        """First in, first out."""
        self._posts.append(callback)
        self.world.time.call_later(0.01, self._guarded(self._next_post))

    def _next_post(self) -> None:
        if self._posts:
            self._posts.pop(0)()

    def deliver(self, callback: Callback) -> None:
        if self.hears_at_once:
            self._guarded(callback)()
        else:
            self.world.time.soon(self._guarded(callback))

    def _guarded(self, callback: Callback) -> Callback:
        def happen() -> None:
            if not self.alive:
                return
            if self.paused is not None:
                self.paused.append(callback)
            else:
                callback()

        return happen

    def registration(self, is_starting: bool) -> bytes:
        return nodes.broker_content(
            {"PLAINTEXT": (f"host{self.broker_id}", 9092)},
            {},
            None,
            fenced=is_starting,
            unclean=is_starting and self.unclean,
        )

    def publish(self, old: MetadataImage, new: MetadataImage) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.history.append(new)

        def acted() -> None:
            done.resolve(None)

        self.world.time.soon(self._guarded(acted))
        return done

    # -- its life ---------------------------------------------------------------------------

    def start(self) -> None:
        opened = self.driver.open(self.world.cluster_id, "9B0Gb9fHTdyps9xXL8uT-Q")

        def entered(outcome: Deferred[MetadataImage]) -> None:
            if isinstance(outcome.error(), StoreUnavailable):
                self.kill()  # whoever watches over the process starts it again
                self.world.time.call_later(1_000, self._again)
                return
            image = outcome.result()
            self.world.cluster_id = image.cluster_id
            self.driver.begin(image)
            self.driver.serve().when_done(lambda _: setattr(self, "is_serving", True))

        opened.when_done(entered)

    def _again(self) -> None:
        if self.broker_id not in self.world.members:
            self.world.add(self.broker_id, unclean=self.unclean)

    @property
    def image(self) -> MetadataImage:
        return self.driver.image

    def kill(self, *, expire: bool = True) -> None:
        self.alive = False
        if self.world.members.get(self.broker_id) is self:
            del self.world.members[self.broker_id]
        if expire:
            self.store.close()

    def pause(self) -> None:
        self.paused = []
        self.store.cut_off()

    def resume(self) -> None:
        waiting, self.paused = self.paused or [], None
        for callback in waiting:
            self.world.time.call_later(0, self._guarded(callback))
        self.store.heal()

    def propose(self, topic: str, index: int, *in_sync: int) -> Deferred[Outcome]:
        state = self.image.topics[topic].partitions[index]
        joining = tuple(
            (broker, self.image.brokers[broker].epoch)
            for broker in in_sync
            if broker not in state.in_sync
        )
        return self.in_sync.propose(
            InSyncProposal(
                topic, index, state.leader_epoch, state.partition_epoch, in_sync, joining
            )
        )


class World:
    def __init__(
        self, brokers: int = 3, settings: Mapping[str, str] | None = None, *, seed: int = 0
    ) -> None:
        self.time = Time(seed)
        self.ensemble = MemoryEnsemble(self.time, session_timeout_ms=6_000)
        self.config = BrokerConfig({"min.insync.replicas": "2", **(settings or {})})
        self.cluster_id: str | None = None
        self._truth: tuple[tuple[int, int], MetadataImage] | None = None
        self.new_uuid = Uuids()
        self.members: dict[int, Member] = {}
        for broker_id in range(1, brokers + 1):
            self.add(broker_id)
        self.until_settled()

    def add(self, broker_id: int, *, unclean: bool = False) -> Member:
        member = self.members[broker_id] = Member(self, broker_id, unclean=unclean)
        member.start()
        return member

    # -- what is known ----------------------------------------------------------------------

    def truth(self) -> MetadataImage:
        # Nodes that end with their session are no change: their number tells.
        now = (self.ensemble.last_change, len(self.ensemble.nodes))
        if self._truth is None or self._truth[0] != now:
            snapshot = Snapshot(self.ensemble.nodes, self.ensemble.last_change)
            self._truth = (now, image_from_snapshot(snapshot))
        return self._truth[1]

    def state(self, topic: str = "t", index: int = 0) -> PartitionState:
        return self.truth().topics[topic].partitions[index]

    def controllers(self) -> list[int]:
        return [one.broker_id for one in self.members.values() if one.driver.duties.is_controller]

    def is_settled(self) -> bool:
        """Everybody serves and has the truth (Z5)."""
        last = self.ensemble.last_change
        if any(one.image.last_change != last for one in self.members.values()):
            return False
        truth = self.truth()
        return (
            len(self.controllers()) == 1
            and truth.controller_id in self.members
            and {one.broker_id for one in truth.live_brokers()} == set(self.members)
            and all(one.is_serving for one in self.members.values())
            and all(same(one.image, truth) for one in self.members.values())
        )

    # -- what is done -----------------------------------------------------------------------

    def until_settled(self) -> None:
        self.time.run_until(self.is_settled)
        self.time.run(200)
        self.time.run_until(self.is_settled)

    def ask(self, broker_id: int, decide: Callable[[MetadataImage], Decision[R]]) -> R:
        answer = self.members[broker_id].driver.submit(decide)
        self.time.run_until(lambda: answer.done)
        return answer.result()

    def create(self, name: str, *replicas: tuple[int, ...], at: int | None = None) -> None:
        assignments = [(index, ids) for index, ids in enumerate(replicas)]

        def decide(image: MetadataImage) -> Decision[Any]:
            return decide_create_topics(
                image,
                [NewTopic(name, assignments=assignments)],
                defaults=TopicDefaults(),
                check_configs=lambda configs: None,
                new_uuid=self.new_uuid,
            )

        (result,) = self.ask(at or next(iter(self.members)), decide)
        assert result.error_code == 0, result
        self.until_settled()


def same(image: MetadataImage, truth: MetadataImage) -> bool:
    """All but the numbers of changes, which a load and a journal count alike in the end."""
    return (
        image.topics == truth.topics
        and image.brokers == truth.brokers
        and image.controller_id == truth.controller_id
        and image.broker_configs == truth.broker_configs
    )
