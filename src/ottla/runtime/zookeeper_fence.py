"""Whether this broker can still prove its session, and the heartbeat that does.

A heartbeat counts from its sending: the session was alive then, so it can't end before that moment
plus the session time-out, whatever happened to the answer, this process or its threads since. The
heartbeat is a `sync`, which the leading server answers: a reading would be answered by a server
that is itself cut off from the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.base.ports import Clock
from ottla.metadata.store import StoreUnavailable
from ottla.runtime.zookeeper_connection import ZooKeeperConnection


class Fence:
    """Fenced from the beginning until this session has registered and has been heard of."""

    def __init__(self, clock: Clock, session_timeout_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._timeout_ms = session_timeout_ms
        self._proven_ms: int | None = None
        self._silence_ended_ms: int | None = None
        self._registered = False
        self._closed = False

    def is_fenced(self) -> bool:
        proven_ms = self._proven_ms
        if proven_ms is None or not self._registered or self._closed:
            return True
        return self._clock.monotonic_ms() - proven_ms > self._timeout_ms()

    def last_silence_ms(self) -> int | None:
        now_ms = self._clock.monotonic_ms()
        return now_ms if self._is_long(now_ms) else self._silence_ended_ms

    def _is_long(self, until_ms: int) -> bool:
        """Two heartbeats without an answer. Others asked at other moments, and the session of one
        of them may have ended although this one has not."""
        proven_ms = self._proven_ms
        return proven_ms is not None and (until_ms - proven_ms) * 3 > self._timeout_ms() * 2

    def session_proven(self, sent_ms: int) -> None:
        if self._proven_ms is None or sent_ms > self._proven_ms:
            if self._is_long(sent_ms):
                self._silence_ended_ms = self._clock.monotonic_ms()
            self._proven_ms = sent_ms

    def registered(self) -> None:
        self._registered = True

    def session_lost(self) -> None:
        self._registered = False
        self._proven_ms = None

    def close(self) -> None:
        """For good: nobody follows the cluster any more."""
        self._closed = True


class Heartbeat:
    """A thread of its own: a long read or a slow follower must not make a broker look dead."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        fence: Fence,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._fence = fence
        self._clock = clock
        self._unanswered_ms: int | None = None
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="zookeeper-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def soon(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._beat()
            self._wake.wait(self._connection.session_timeout_ms / 3000)
            self._wake.clear()

    def _beat(self) -> None:
        self._connection.revive()
        if not self._connection.connected.is_set():
            self._unanswered_ms = None
            return
        now_ms = self._clock.monotonic_ms()
        if self._unanswered_ms is None:
            self._unanswered_ms = now_ms
        elif (now_ms - self._unanswered_ms) * 3 >= self._connection.session_timeout_ms * 2:
            # kazoo looks for silence only while nothing is sent, and this heartbeat is sent.
            self._unanswered_ms = None
            self._connection.drop()
            return
        session_count = self._connection.session_count
        try:
            asked = self._connection.sync_later()
        except StoreUnavailable:
            return
        asked.rawlink(partial(self._answered, now_ms, session_count))

    def _answered(self, sent_ms: int, session_count: int, answer: Any) -> None:
        """On kazoo's thread; only takes note."""
        if answer.successful() and session_count == self._connection.session_count:
            self._unanswered_ms = None
            self._fence.session_proven(sent_ms)
