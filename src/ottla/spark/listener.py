"""Consumer groups that are where their queries are: at the end of every batch, and of the last one.

Spark tells a listener of each batch when it is done. What the source keeps in its offsets is enough
to commit them: the group, who commits, and the brokers. A commit that fails is tried again with the
next batch and when the query ends. Nothing here can fail a query.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
)

from ottla.base.errors import OttlaError
from ottla.spark.client_view import ClientView
from ottla.spark.errors import OffsetError
from ottla.spark.group_offsets import GroupOffsets
from ottla.spark.offsets import NOTES, Position, position_of

log = logging.getLogger(__name__)

# Brokers, group, and who commits: sources of one query, and queries one after the other, may have
# the same group, and each signs for itself.
Member = tuple[str, str, str]


class BriefEvents(JStreamingQueryListener):
    """What the JVM calls. pyspark would ask it for every figure of a batch by itself, hundreds of
    calls where there is state: on a busy machine a listener fell minutes behind its queries."""

    def onQueryProgress(self, jevent: Any) -> None:
        given = {"progress": json.loads(jevent.progress().json())}
        self.pylistener.onQueryProgress(QueryProgressEvent.fromJson(given))


class BriefListener(StreamingQueryListener):
    _in_the_jvm: Any = None

    @property
    def _jlistener(self) -> Any:
        """Spark asks for it where it is classic; in Spark Connect events are JSON anyway."""
        if self._in_the_jvm is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm
            self._in_the_jvm = jvm.PythonStreamingQueryListenerWrapper(BriefEvents(self))
        return self._in_the_jvm


class GroupListener(BriefListener):
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._lock = threading.Lock()
        self._views: dict[str, ClientView] = {}
        self._groups: dict[Member, GroupOffsets] = {}
        # Of each run: where its sources ended, as far as it is not committed yet.
        self._owed: dict[str, dict[Member, Position]] = {}
        self._has_given_up = False

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        self._pay(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        run = str(progress.runId)
        with self._lock:
            for source in progress.sources:
                position = position_in(source.endOffset)
                if position is not None and position.group_id:
                    self._owed.setdefault(run, {})[_member(position)] = position
        self._pay(run)

    def onQueryTerminated(self, event: Any) -> None:
        run = str(event.runId)
        self._pay(run)
        with self._lock:
            self._owed.pop(run, None)

    def close(self) -> None:
        with self._lock:
            for view in self._views.values():
                view.close()
            self._views.clear()
            self._groups.clear()

    def give_up(self) -> None:
        """Brokers are away and the session ends: who waits for them now waits no longer. The next
        run commits what is owed, before its first batch."""
        self._has_given_up = True
        for view in list(self._views.values()):
            view.close()

    def _pay(self, run: str) -> None:
        with self._lock:
            owed = self._owed.get(run, {})
            for member, position in list(owed.items()):
                try:
                    # In this order: a view that `give_up` has not seen is made after it.
                    group = self._group(position)
                    if self._has_given_up:
                        return
                    if group.keep(position):
                        del owed[member]
                except OttlaError as failure:
                    log.warning("offsets of group %s not committed: %s", position.group_id, failure)

    def _group(self, position: Position) -> GroupOffsets:
        member = _member(position)
        found = self._groups.get(member)
        if found is None:
            view = self._views.get(position.servers)
            if view is None:
                settings = {**self._settings, "bootstrap.servers": position.servers}
                view = self._views[position.servers] = ClientView(settings)
            found = GroupOffsets(view, position.group_id, position.query, only_forward=True)
            self._groups[member] = found
        return found


def _member(position: Position) -> Member:
    return (position.servers, position.group_id, position.query)


def position_in(text: str | None) -> Position | None:
    """Of a source of ours; None for all others."""
    try:
        given = json.loads(text or "null")
        if not isinstance(given, dict) or NOTES not in given:
            return None
        return position_of(given)
    except (ValueError, OffsetError):
        return None
