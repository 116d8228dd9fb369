"""What the controller has to do without being asked: one commit after the other until all is well.

Brokers that died are declared dead, and in the same commit, as far as it fits, their partitions get
other leaders and lose them from their in-sync sets. Who comes back leads what has no leader; who
comes back from a loss of power is taken out first. Moves that are complete are ended.

A machine that is told of images and of liveness and gives the next decision, at most 200 partitions
and 256 KiB at a time. Nothing is remembered that can't be found again: after a conflict the newer
image is looked at, and only what is still to be done is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.ids import NO_BROKER
from ottla.metadata import paths
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.reassignment import maybe_complete
from ottla.metadata.store import Gone
from ottla.metadata.topic_settings import TopicSettings


class Moved(NamedTuple):
    """One partition before and after."""

    topic: str
    partition: int
    before: PartitionState
    after: PartitionState


@dataclass(slots=True)
class Done:
    """What a commit has done, for people and for metrics."""

    dead: list[int] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)


class Duties:
    """Of one controller: made anew when a broker becomes it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: dict[str, None] = dict.fromkeys(image.topics)
        """Those that may have something to do."""
        self._alive: frozenset[int] | None = None
        self._told_dead: set[int] = set()

    def on_image(self, image: MetadataImage) -> None:
        old, self._image = self._image, image
        if image.brokers is not old.brokers or image.broker_configs is not old.broker_configs:
            self._topics = dict.fromkeys(image.topics)
            self._on_brokers(old, image)
        elif image.topics is not old.topics:
            for name, topic in image.topics.items():
                if old.topics.get(name) is not topic:
                    self._topics[name] = None

    def _on_brokers(self, old: MetadataImage, new: MetadataImage) -> None:
        """Who has registered since liveness was asked for is alive, whatever it said."""
        come = {
            broker.broker_id
            for broker in new.brokers.values()
            if broker.epoch != -1
            and (known := old.brokers.get(broker.broker_id)) is not broker
            and (known is None or known.epoch != broker.epoch)
        }
        self._told_dead -= come
        if self._alive is not None:
            self._alive |= come

    def on_liveness(self, alive: frozenset[int]) -> None:
        """Whose liveness nodes were there a moment ago."""
        self._alive = alive

    def on_committed(self, done: Done) -> None:
        self._told_dead.update(done.dead)

    def next(self, settings: TopicSettings) -> Decision[Done] | None:
        """None: nothing is to be done now."""
        image = self._image
        dead = self._dead()
        writes = PartitionWrites(image)
        done = Done(dead)
        mover = _Mover(image, dead, settings, writes)
        has_moved = set()
        # Who has no leader at all comes first.
        for only_leaderless in (True, False):
            for name in image.topics if dead else list(self._topics):
                topic = image.topics.get(name)
                moved = [] if topic is None else list(mover.move(topic, only_leaderless))
                done.moved += moved
                if moved:
                    has_moved.add(name)
                if writes.is_full():
                    break
                if name not in has_moved and not dead and not only_leaderless:
                    # Not where something is decided: the commit may fail.
                    del self._topics[name]
            if writes.is_full():
                break
        gone = [Gone(paths.broker_id(broker)) for broker in dead]
        if not gone and writes.is_empty():
            return None
        return decided(image, [*gone, *writes.operations()], done)

    def _dead(self) -> list[int]:
        """Who is to be declared dead.

        Also those whom this image has as dead already: it may have been loaded after they were
        gone, and then nobody has told the others.
        """
        if self._alive is None:
            return []
        known = set(self._image.brokers)
        return sorted(known - self._alive - self._told_dead)


class _Mover:
    """Finds what is due, partition by partition."""

    def __init__(
        self,
        image: MetadataImage,
        dead: Iterable[int],
        settings: TopicSettings,
        writes: PartitionWrites,
    ) -> None:
        self._settings = settings
        self._writes = writes
        self._present = {one.broker_id for one in image.live_brokers()}.difference(dead)
        self._may_lead = {one for one in self._present if image.may_lead(one)}
        self._unclean = image.unclean_brokers()
        self._has_lost_replicas = any(one.offline for one in image.brokers.values())
        self._image = image

    def move(self, topic: TopicImage, only_leaderless: bool) -> Iterator[Moved]:
        """What is due in one topic, until the commit is full; each partition once."""
        present, unclean, may_lead = self._present, self._unclean, self._may_lead
        for index, state in topic.partitions.items():
            if self._has_lost_replicas:
                # Whose disk has failed is as good as dead to this partition.
                lost = self._image.lost_by(topic, index)
                present, unclean = self._present - lost, self._unclean | lost
                may_lead = self._may_lead - lost
            if only_leaderless == (state.leader in present):
                continue
            if is_well(state, present, unclean) and not state.eligible:
                continue
            # Who is eligible by a number that was lowered meanwhile holds the leader up.
            in_sync_min = self._settings.min_in_sync(topic)
            changed = PartitionChange(
                state,
                may_lead.__contains__,
                in_sync_min,
                leaving=set(state.replicas) - present,
                unknowing=unclean,
                unclean=self._settings.is_unclean_allowed(topic),
            ).built()
            after = maybe_complete(changed, may_lead.__contains__, in_sync_min)
            if self._writes.add(topic, index, after):
                yield Moved(topic.name, index, state, after)
                if self._writes.is_full():
                    return


def is_well(state: PartitionState, present: set[int], unclean: frozenset[int]) -> bool:
    """Most partitions, most of the time; looked at for each of them whenever a broker comes."""
    return (
        state.leader != NO_BROKER
        and present.issuperset(state.in_sync)
        and not state.is_reassigning()
        and not (unclean and unclean.intersection((*state.in_sync, *state.eligible)))
    )
