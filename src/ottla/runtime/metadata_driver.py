"""This broker's part in the cluster: registered in the store, its image up to date, its decisions
made, its duties done if it is the controller, and its leaving.

Puts together the lane to the store, the image, the decisions that are asked for and the duties.
Knows pool, timers, clock and chance as ports only, so that the simulator can run it. `post` runs
something on the loop's thread, from whatever thread it is called.

A session that is lost: this broker is nobody in the store until it has registered again, which it
does after a random while, for all the others do too. Then it loads everything anew and acts on the
difference. Meanwhile it decides nothing, and goes on serving what it leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, check
from ottla.base.ports import Clock, Pool, Random, Timers
from ottla.metadata import paths
from ottla.metadata.bootstrap import (
    decide_cluster_id,
    decide_shared_settings,
    ignored_setting,
)
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.nodes import DamagedNode
from ottla.metadata.registrations import decide_new_epochs, decide_serving, may_serve
from ottla.metadata.store import Change, MetadataStore, Snapshot, StoreRefused, VersionConflict
from ottla.metadata.topic_settings import TopicSettings, settings_of
from ottla.runtime.duty_runner import DutyRunner
from ottla.runtime.image_keeper import ImageKeeper, Publish
from ottla.runtime.leaving import Leaving
from ottla.runtime.store_lane import StoreLane
from ottla.runtime.submissions import Submissions

log = logging.getLogger("ottla.runtime")

R = TypeVar("R")
Post = Callable[[Callable[[], None]], None]

REGISTER_JITTER_MS = 1_000
REGISTER_RETRY_MS = 1_000
RELOAD_DAMAGED_MS = 5_000
PATIENCE_MS = 10_000


class MetadataDriver:
    """`registration` makes the content of the liveness node: fenced until this broker serves."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        store: MetadataStore,
        is_cluster: bool,
        pool: Pool,
        timers: Timers,
        clock: Clock,
        random: Random,
        post: Post,
        registration: Callable[[bool], bytes],
        publish: Publish,
    ) -> None:
        self.broker_id = broker_id
        self._config = config
        self.store = store
        self._is_cluster = is_cluster
        self._timers = timers
        self._random = random
        self._post = post
        self._registration = registration
        self.lane = StoreLane(pool)
        self._keeper = ImageKeeper(publish, self._on_image)
        self._submissions = Submissions(self._keeper, store, self.lane, timers)
        self._settings: TopicSettings | None = None
        self.duties = DutyRunner(
            broker_id=broker_id,
            store=store,
            lane=self.lane,
            timers=timers,
            clock=clock,
            random=random,
            settings=self.settings,
        )
        self._leaving = Leaving(self, timers)
        self._serving: Deferred[None] | None = None
        """Done once this broker takes part. Until then it registers fenced, also after a lost
        session: what it may have lost is not forgotten on the way."""
        self._is_asking_to_serve = False
        self._is_closed = False
        self._is_reloading = False

    # -- what everybody asks ----------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._keeper.image

    def settings(self) -> TopicSettings:
        """What topics are set to in the newest image."""
        if self._settings is None:
            self._settings = settings_of(self.image, self.broker_id, self._config)
        return self._settings

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]:
        return self._submissions.submit(decide)

    def when_acted(self) -> Deferred[None]:
        """Done when this broker has acted on the image that is the newest now."""
        return self._keeper.when_published(self.image.last_change)

    # -- start ------------------------------------------------------------------------------

    def open(self, known_cluster_id: str | None, new_cluster_id: str) -> Deferred[MetadataImage]:
        """Registers and loads. Fails with StoreRefused or StoreUnavailable, whichever says why."""
        self.store.follow(lambda change: self._post(lambda: self._on_change(change)))
        self.store.watch(
            lambda: self._post(self._on_liveness_changed),
            lambda: self._post(self._on_session_lost),
        )
        opened: Deferred[MetadataImage] = Deferred()

        def entered(outcome: Deferred[tuple[Snapshot, MetadataImage]]) -> None:
            error = outcome.error()
            if error is not None:
                opened.fail(error)
                return
            self._submissions.open()
            self.duties.start()
            self._keeper.on_snapshot(outcome.result()[0])
            opened.resolve(self.image)

        self._load(entered, self._enter, known_cluster_id, new_cluster_id)
        return opened

    def _load(
        self, then: Callable[[Deferred[R]], None], work: Callable[..., R], *arguments: Any
    ) -> None:
        """What is heard while `work` reads the store is kept until `then` has taken it."""
        self._keeper.load_begins()
        loading = self.lane.run(work, *arguments)
        loading.when_done(then)
        loading.when_done(lambda _: self._keeper.load_ended())

    def _enter(
        self, known_cluster_id: str | None, new_cluster_id: str
    ) -> tuple[Snapshot, MetadataImage]:
        """In the pool."""
        self._found_cluster(known_cluster_id, new_cluster_id)
        self.store.register(self.broker_id, self._registration(True))
        try:
            self.store.campaign(self.broker_id)
            # A broker that starts knows nothing that it could stay with.
            snapshot = self.store.load()
            image = image_from_snapshot(snapshot)
        except DamagedNode as damage:
            raise StoreRefused(str(damage)) from damage
        ignored = ignored_setting(image, self._config)
        if ignored is not None:
            log.warning("%s", ignored)
        return snapshot, image

    def _found_cluster(self, known_cluster_id: str | None, new_cluster_id: str) -> None:
        """The first broker gives the cluster its id; data of another cluster are refused."""
        while True:
            present = self.store.load().nodes
            operations = decide_cluster_id(
                present.get(paths.CLUSTER_ID), known_cluster_id, new_cluster_id
            )
            operations += decide_shared_settings(present, self._config)
            if not operations:
                return
            try:
                self.store.commit(operations)
            except VersionConflict:
                continue  # another broker was the first
            return

    def begin_epochs(self) -> Deferred[None]:
        """For a single node that may have lost records, before anybody can ask it."""
        settings = self.settings
        return self.submit(lambda image: decide_new_epochs(image, self.broker_id, settings()))

    def begin(self, acted_on: MetadataImage) -> None:
        """The replicas are open, as `acted_on` has them: from now on this broker follows."""
        self._keeper.begin(acted_on)

    def serve(self) -> Deferred[None]:
        """Takes part, once nothing is left of an earlier life."""
        self._serving = Deferred()
        self._timers.call_later(PATIENCE_MS, self._complain)
        self._maybe_serve()
        return self._serving

    def _maybe_serve(self) -> None:
        waiting = self._serving
        if waiting is None or waiting.done or self._is_asking_to_serve:
            return
        if not may_serve(self.image, self.broker_id, self.settings()):
            return
        self._is_asking_to_serve = True
        said = self.submit(lambda image: decide_serving(image, self.broker_id))

        def done(outcome: Deferred[None]) -> None:
            self._is_asking_to_serve = False
            if outcome.error() is None:
                waiting.resolve(None)
            else:
                log.warning("this broker can't take part yet: %s", outcome.error())
                self._timers.call_later(REGISTER_RETRY_MS, self._maybe_serve)

        said.when_done(done)

    def _complain(self) -> None:
        if self._serving is not None and not self._serving.done and not self._is_closed:
            log.warning("this broker waits for the controller, who has to replace it as a leader")
            self._timers.call_later(PATIENCE_MS, self._complain)

    @property
    def _is_starting(self) -> bool:
        return self._serving is None or not self._serving.done

    # -- what the store says ----------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        if not self._is_closed:
            self._keeper.on_change(change)

    def _on_image(self, image: MetadataImage) -> None:
        self._settings = None
        self.duties.on_image(image)
        self._maybe_serve()
        if self._keeper.damaged and not self._is_reloading:
            self._is_reloading = True
            self._timers.call_later(RELOAD_DAMAGED_MS, self._reload_damaged)

    def _on_liveness_changed(self) -> None:
        if not self._is_closed:
            self.duties.ask_liveness()

    def _reload_damaged(self) -> None:
        """Who mends a node by hand tells nobody."""

        def loaded(outcome: Deferred[Snapshot]) -> None:
            self._is_reloading = False
            if outcome.error() is None and not self._is_closed:
                self._keeper.on_snapshot(outcome.result())
            elif self._keeper.damaged:
                self._on_image(self.image)

        self._load(loaded, self.store.load)

    # -- a lost session ---------------------------------------------------------------------

    def _on_session_lost(self) -> None:
        self._leaving.abandon()
        if self._is_closed or self._leaving.has_begun:
            return
        log.warning("the session with the metadata store has ended: registering again")
        self._submissions.close("this broker registers again")
        self.duties.stop()
        delay_ms = self._random.uniform(0, REGISTER_JITTER_MS)
        self._timers.call_later(delay_ms, self._register_again)

    def _register_again(self) -> None:
        if self._is_closed or self._leaving.has_begun:
            return

        def entered(outcome: Deferred[Snapshot]) -> None:
            error = outcome.error()
            if error is None:
                self._submissions.open()
                self.duties.start(is_again=True)
                self._keeper.on_snapshot(outcome.result())
                log.info("registered again")
                return
            check(isinstance(error, OttlaError), f"registering again failed: {error!r}")
            log.warning("this broker could not register again: %s", error)
            delay_ms = REGISTER_RETRY_MS * self._random.uniform(0.5, 1.5)
            self._timers.call_later(delay_ms, self._register_again)

        self._load(entered, self._enter_again, self.image.cluster_id)

    def _enter_again(self, cluster_id: str) -> Snapshot:
        """In the pool. A store that was emptied or replaced meanwhile is not taken for true."""
        stored = self.store.load().nodes.get(paths.CLUSTER_ID)
        decide_cluster_id(stored, cluster_id, cluster_id)
        self.store.register(self.broker_id, self._registration(self._is_starting))
        return self.store.load()

    # -- the end ----------------------------------------------------------------------------

    def leave(self) -> Deferred[None]:
        """A controlled shutdown: done when others lead what they can lead, or it took too long."""
        return self._leaving.begin()

    def sign_off(self) -> Deferred[None]:
        """Not the controller any more, not registered any more. Never fails."""
        self._is_closed = True
        self.duties.stop()
        self._submissions.close("this broker stops")
        signed_off: Deferred[None] = Deferred()

        def done(outcome: Deferred[None]) -> None:
            if outcome.error() is not None:
                log.warning("this broker could not sign off: %s", outcome.error())
            signed_off.resolve(None)

        self.lane.run(self._go).when_done(done)
        return signed_off

    def _go(self) -> None:
        self.store.resign(self.broker_id)
        self.store.unregister(self.broker_id)
