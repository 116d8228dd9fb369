"""Runs the controller's duties, if this broker is it, and stands for election when nobody is.

Liveness is asked for whenever the store says that it may have changed, and now and then besides.
Duties are decided on the newest image, one commit at a time, only while this broker is sure of its
session; a successor makes every one of its commits fail (Z1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, StorageError
from ottla.base.ids import NO_BROKER
from ottla.base.ports import Clock, Random, Timer, Timers
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.decision import Decision
from ottla.metadata.duties import Done, Duties
from ottla.metadata.image import MetadataImage
from ottla.metadata.new_leaders import new_leaders
from ottla.metadata.preferred_leaders import decide_preferred_leaders
from ottla.metadata.store import (
    Change,
    Liveness,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
)
from ottla.metadata.topic_settings import TopicSettings
from ottla.runtime.store_lane import StoreLane

log = logging.getLogger("ottla.runtime")

LIVENESS_INTERVAL_MS = 10_000
"""The store tells of what changes; this is for the day when it does not."""
RETRY_MS = 250
HOLD_DEATHS_MS = 5_000
"""After a silence of the store nobody's death is acted on for so long: sessions have ended because
of it, and whoever lives is about to register again."""
PRUNE_CHANGES = 200
IMBALANCE_PERCENTAGE = "leader.imbalance.per.broker.percentage"


class DutyStats:
    """Elections that came about while this broker was the controller, whoever decided them."""

    __slots__ = ("elections", "unclean_elections")

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0


class DutyRunner:
    """`settings` are those of the newest image."""

    def __init__(
        self,
        *,
        broker_id: int,
        store: MetadataStore,
        lane: StoreLane,
        timers: Timers,
        clock: Clock,
        random: Random,
        settings: Callable[[], TopicSettings],
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._lane = lane
        self._timers = timers
        self._clock = clock
        self._random = random
        self._settings = settings
        self.stats = DutyStats()
        self._image: MetadataImage | None = None
        self._duties: Duties | None = None
        self._may_campaign = False
        self._is_asking = False
        self._ask_again = False
        self._is_busy = False
        self._hold_until_ms = 0
        self._hold_timer: Timer | None = None
        self._conflicts = 0
        self._preferred_due = False
        self._pruned_at = 0
        self._complaints: set[str] = set()
        self._liveness_timer: Timer | None = None
        self._preferred_timer: Timer | None = None

    @property
    def is_controller(self) -> bool:
        return self._duties is not None

    # -- life -------------------------------------------------------------------------------

    def start(self, *, is_again: bool = False) -> None:
        """This broker is registered; `is_again`: after its session was lost."""
        self._may_campaign = True
        if is_again:
            self._hold_until_ms = self._clock.monotonic_ms() + HOLD_DEATHS_MS
        self.ask_liveness()

    def stop(self) -> None:
        """No more elections, no more duties: this broker leaves, or has lost its session."""
        self._may_campaign = False
        self._step_down()
        if self._liveness_timer is not None:
            self._liveness_timer.cancel()
            self._liveness_timer = None

    def on_image(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if image.controller_id != self._broker_id or not self._may_campaign:
            self._step_down()
            if image.controller_id == NO_BROKER and self._may_campaign:
                self.ask_liveness()
            return
        if self._duties is None:
            log.info("this broker is the controller, in epoch %d", image.controller_epoch)
            self._duties = Duties(image)
            self._schedule_preferred()
            self.ask_liveness()
        else:
            self._duties.on_image(image)
            if before is not None:
                self._count_elections(before, image)
        self._maybe_prune(image)
        self._run()

    def _step_down(self) -> None:
        if self._duties is not None:
            log.info("this broker is not the controller any more")
            self._duties = None
        if self._preferred_timer is not None:
            self._preferred_timer.cancel()
            self._preferred_timer = None

    # -- liveness ---------------------------------------------------------------------------

    def ask_liveness(self) -> None:
        if self._is_asking:
            self._ask_again = True
            return
        self._is_asking = True
        self._ask_again = False
        self._lane.run(self._store.liveness).when_done(self._on_liveness)

    def _on_liveness(self, outcome: Deferred[Liveness]) -> None:
        self._is_asking = False
        self._schedule_liveness()
        try:
            liveness = outcome.result()
        except (StoreUnavailable, StorageError):
            return  # the store tells when it is back, and the timer runs
        except OttlaError as failure:
            self._complain("who lives is not known", failure)
            return
        if self._duties is not None:
            self._duties.on_liveness(liveness.brokers)
        if self._may_campaign and self._is_vacant(liveness):
            self._lane.run(self._store.campaign, self._broker_id).when_done(self._on_campaigned)
        if self._ask_again:
            self.ask_liveness()
        self._run()

    def _is_vacant(self, liveness: Liveness) -> bool:
        """Nobody is the controller, or this broker was, in an earlier life."""
        if liveness.controller is None:
            return True
        return liveness.controller == self._broker_id and not self.is_controller

    def _on_campaigned(self, outcome: Deferred[Change | None]) -> None:
        try:
            outcome.result()
        except (VersionConflict, StoreUnavailable, StorageError):
            return  # somebody else was faster, or it is tried again when the store is back
        except OttlaError as failure:
            self._complain("this broker cannot become the controller", failure)

    def _schedule_liveness(self) -> None:
        if self._liveness_timer is not None:
            self._liveness_timer.cancel()
        delay_ms = LIVENESS_INTERVAL_MS * self._random.uniform(0.8, 1.2)
        self._liveness_timer = self._timers.call_later(delay_ms, self._on_liveness_timer)

    def _on_liveness_timer(self) -> None:
        self._liveness_timer = None
        if self._may_campaign:
            self.ask_liveness()

    # -- duties -----------------------------------------------------------------------------

    def _run(self) -> None:
        duties = self._duties
        if duties is None or self._is_busy or self._store.is_fenced():
            return
        if self._is_held():
            return
        decision = duties.next(self._settings()) or self._preferred()
        if decision is None:
            return
        self._is_busy = True
        committed = self._lane.run(self._store.commit, decision.writes)
        committed.when_done(lambda outcome: self._on_committed(duties, decision, outcome))

    def _is_held(self) -> bool:
        silence_ms = self._store.last_silence_ms()
        if silence_ms is not None:
            self._hold_until_ms = max(self._hold_until_ms, silence_ms + HOLD_DEATHS_MS)
        left_ms = self._hold_until_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            return False
        if self._hold_timer is None:
            self._hold_timer = self._timers.call_later(left_ms + 1, self._on_hold_timer)
        return True

    def _on_hold_timer(self) -> None:
        self._hold_timer = None
        self._run()

    def _on_committed(
        self, duties: Duties, decision: Decision[Done], outcome: Deferred[Change]
    ) -> None:
        try:
            outcome.result()
        except VersionConflict:
            # Who was thought dead may be back: liveness is as old as the image.
            self._conflicts += 1
            self.ask_liveness()
            self._lane.run(self._store.refresh).when_done(lambda _: self._again_soon())
        except OttlaError as failure:
            # Also what nobody expects: a controller that stands still is worse than any of it.
            self._complain("the controller's duties have to wait", failure)
            self._conflicts = 0
            self._again_soon()
        else:
            self._conflicts = 0
            self._complaints.clear()
            duties.on_committed(decision.response)
            self._tell(decision.response)
            self._again()

    def _complain(self, what: str, failure: OttlaError) -> None:
        """Once for each reason: all of it is tried again soon."""
        complaint = f"{what}: {failure}"
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            log.warning("%s", complaint)

    def _again_soon(self) -> None:
        if self._conflicts == 1:
            self._again()
        else:
            self._timers.call_later(RETRY_MS * self._random.uniform(0.5, 1.5), self._again)

    def _again(self) -> None:
        self._is_busy = False
        self._run()

    def _tell(self, done: Done) -> None:
        for broker in done.dead:
            log.info("broker %d is gone", broker)

    def _count_elections(self, before: MetadataImage, after: MetadataImage) -> None:
        for new in new_leaders(before, after):
            self.stats.elections += 1
            if new.is_unclean:
                self.stats.unclean_elections += 1
                log.warning(
                    "unclean election: broker %d leads %s-%d in epoch %d; records may be lost",
                    new.leader,
                    new.topic,
                    new.partition,
                    new.leader_epoch,
                )

    # -- from time to time ------------------------------------------------------------------

    def _schedule_preferred(self) -> None:
        seconds = self._settings().config.get_int("leader.imbalance.check.interval.seconds")
        self._preferred_timer = self._timers.call_later(seconds * 1000, self._on_preferred_timer)

    def _on_preferred_timer(self) -> None:
        self._schedule_preferred()
        self._preferred_due = self._settings().config.get_bool("auto.leader.rebalance.enable")
        self._run()

    def _preferred(self) -> Decision[Done] | None:
        image = self._image
        if not self._preferred_due or image is None:
            return None
        config: BrokerConfig = self._settings().config
        # Kafka 4 looks at every partition; who sets the older percentage means it.
        percentage = 0
        if config.is_set(IMBALANCE_PERCENTAGE):
            percentage = config.get_int(IMBALANCE_PERCENTAGE)
        decision = decide_preferred_leaders(image, self._settings(), percentage=percentage)
        self._preferred_due = decision is not None
        return decision

    def _maybe_prune(self, image: MetadataImage) -> None:
        if image.last_change - self._pruned_at >= PRUNE_CHANGES:
            self._pruned_at = image.last_change
            self._lane.run(self._store.prune_changes).when_done(self._on_pruned)

    def _on_pruned(self, outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except (VersionConflict, StoreUnavailable, StorageError):
            return  # there will be more changes, and another try
        except OttlaError as failure:
            self._complain("old changes stay in the store", failure)
