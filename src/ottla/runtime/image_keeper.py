"""The newest image of this broker, and how far the broker has acted on it.

Changes come in the store's order and make the next image at once; what the difference asks of this
broker is published, one step after the other. While a step is under way the image goes on, and the
next step makes up for all of it. So nobody ever acts on an image that is older than the last one.

Reading everything takes a while, and the store goes on telling of changes meanwhile: those that are
newer than what was read come before it. They are kept, and laid over it.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from ottla.base.deferred import Deferred
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.nodes import DamagedNode
from ottla.metadata.sound_changes import Taken, apply_sound, reload_sound
from ottla.metadata.store import Change, Snapshot

log = logging.getLogger("ottla.runtime")

Publish = Callable[[MetadataImage, MetadataImage], Deferred[None]]


class ImageKeeper:
    """`on_image` is called with each new image, before anything is published."""

    def __init__(self, publish: Publish, on_image: Callable[[MetadataImage], None]) -> None:
        self.image = EMPTY_IMAGE
        self.damaged: dict[str, str] = {}
        """Nodes that could not be read, and why; said once each."""
        self._publish = publish
        self._on_image = on_image
        self._has_image = False
        self._loads = 0
        self._heard: list[Change] = []
        """While something loads."""
        self._published: MetadataImage | None = None
        self._is_publishing = False
        self._waiting: list[tuple[int, int, Deferred[None]]] = []
        self._order = 0

    # -- what the store says ----------------------------------------------------------------

    def on_change(self, change: Change) -> None:
        if self._loads:
            self._heard.append(change)
        if self._has_image and change.number > self.image.last_change:
            healed = [update.path for update in change.updates if update.path in self.damaged]
            self._take(apply_sound(self.image, change), healed)

    def load_begins(self) -> None:
        """To be called before the store is asked; `load_ended` whatever comes of it."""
        self._loads += 1

    def load_ended(self) -> None:
        self._loads -= 1
        if not self._loads:
            self._heard.clear()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Before `load_ended`."""
        image, damaged = reload_sound(self.image, snapshot)
        for change in self._heard:
            if change.number > image.last_change:
                written = {update.path for update in change.updates}
                image, more = apply_sound(image, change)
                damaged = [one for one in damaged if one.path not in written] + more
        self._has_image = True
        self._take(Taken(image, damaged), list(self.damaged))

    def _take(self, taken: Taken, healed: list[str]) -> None:
        for path in healed:
            if all(damage.path != path for damage in taken.damaged):
                log.warning("node %s can be read again", path)
                del self.damaged[path]
        for damage in taken.damaged:
            self._complain(damage)
        self.image = taken.image
        self._on_image(taken.image)
        self._publish_next()

    def _complain(self, damage: DamagedNode) -> None:
        if self.damaged.get(damage.path) != damage.reason:
            log.error("%s; what was known before stays", damage)
            self.damaged[damage.path] = damage.reason

    # -- what this broker does about it -----------------------------------------------------

    def begin(self, acted_on: MetadataImage) -> None:
        """This broker is where `acted_on` is; from now on what is newer is published."""
        self._published = acted_on
        self._publish_next()

    def when_published(self, number: int) -> Deferred[None]:
        """Done when this broker has acted on the change with this number, or on a later one."""
        done: Deferred[None] = Deferred()
        self._order += 1
        heapq.heappush(self._waiting, (number, self._order, done))
        self._wake()
        return done

    def _publish_next(self) -> None:
        old, new = self._published, self.image
        if old is None or self._is_publishing or old is new:
            return
        self._is_publishing = True

        def published(outcome: Deferred[None]) -> None:
            self._is_publishing = False
            self._published = new
            failure = outcome.error()
            if failure is not None:
                log.error("the change of the metadata was not acted on", exc_info=failure)
            self._wake()
            self._publish_next()

        self._publish(old, new).when_done(published)

    def _wake(self) -> None:
        if self._published is None:
            return
        reached = self._published.last_change
        while self._waiting and self._waiting[0][0] <= reached:
            heapq.heappop(self._waiting)[2].resolve(None)
