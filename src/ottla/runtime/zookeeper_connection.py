"""One kazoo client: typed answers with a deadline, and which session it is.

Owns the client for the life of the broker; kazoo makes new connections and, after a session has
ended, a new session by itself. `session_count` grows with every session that ended, so whoever
compares it before and after knows whether an answer belongs to the session that was asked.

A lost connection, a lost session and silence are all StoreUnavailable: whether the server acted is
unknown. kazoo keeps requests that it could not send yet, even into the next session; that is why
nothing is sent while there is no connection, and why nothing here is repeated by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import AsyncResult
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ottla.base.errors import OttlaError
from ottla.metadata.configs.zookeeper import ZooKeeperSettings
from ottla.metadata.store import ChangeTooLarge, StoreRefused, StoreUnavailable
from ottla.runtime.zookeeper_plan import CHECK, CREATE, DELETE, SET, Step
from ottla.runtime.zookeeper_socket import Sockets

log = logging.getLogger("ottla.zookeeper")

# ZooKeeper takes a packet of 1 MiB (jute.maxbuffer) and drops the connection of who sends more.
MULTI_BYTES_MAX = 900 * 1024
STEP_BYTES = 64
"""Of a step beside its path and content: lengths, flags, the access list."""

REQUESTS_AT_ONCE = 256
RECONNECT = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
CLOSE_SECONDS_MAX = 2.0

R = TypeVar("R")
Watcher = Callable[[WatchedEvent], None]


class Read(NamedTuple):
    """A node as it was found; content None is a parent that the store made."""

    content: bytes | None
    stat: ZnodeStat


class StepFailed(OttlaError):
    """ZooKeeper refused the multi because of this step; nothing of it happened."""

    def __init__(self, step: Step, error: Exception) -> None:
        super().__init__(f"{step.path}: {type(error).__name__}")
        self.step = step
        self.error = error


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """What kazoo tells: errors only, since it tells every attempt to connect, and passwords too.

    But one line tells what nothing else does: which session time-out the server has granted.
    """

    def __init__(self, granted: Callable[[int], None]) -> None:
        super().__init__(logging.getLogger("ottla.zookeeper.client"), {})
        self._granted = granted

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        if level >= logging.ERROR:
            super().log(level, msg, *args, **kwargs)
        elif len(args) == 5 and str(msg).startswith("Session created"):
            self._granted(int(args[2]))


class ZooKeeperConnection:
    def __init__(
        self,
        settings: ZooKeeperSettings,
        *,
        on_connected: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        self.session_count = 0
        self.session_timeout_ms = settings.session_timeout_ms
        self.connected = threading.Event()
        self._chroot = settings.chroot
        self._settings = settings
        self._on_connected = on_connected
        self._on_session_lost = on_session_lost
        self._closing = False
        self._acl = CREATOR_ALL_ACL if settings.restrict else OPEN_ACL_UNSAFE
        # A server that is silent for longer has lost its connection, says kazoo.
        self._answer_s = settings.session_timeout_ms / 1000
        self._patience_s = settings.session_timeout_ms / 3000
        self._opened = threading.Event()
        self._sockets = Sockets(settings, self._opened.set)
        self.client = KazooClient(
            hosts=settings.hosts,
            timeout=settings.session_timeout_ms / 1000,
            handler=self._sockets,
            auth_data=[("digest", settings.digest)] if settings.digest else None,
            connection_retry=dict(RECONNECT),
            logger=ClientLog(self._granted),
        )
        self.client.add_listener(self._state_changed)

    # -- life -------------------------------------------------------------------------------

    def open(self) -> None:
        """Connects and makes the chroot; StoreUnavailable when nobody answers in time. To be closed
        also when it fails."""
        self.client.start_async()
        self._opened.wait(self._settings.connection_timeout_ms / 1000)
        if not self.connected.is_set():
            reason = self._sockets.last_error or "no answer"
            raise StoreUnavailable(
                f"ZooKeeper at {self._settings.hosts} could not be reached within "
                f"{self._settings.connection_timeout_ms} ms ({reason})"
            )
        parts = self._chroot.split("/")[1:]
        for count in range(len(parts)):
            self._make("/" + "/".join(parts[: count + 1]))

    def make_parent(self, path: str) -> None:
        self._make(self._chroot + path)

    def _make(self, path: str) -> None:
        if self._answer(self._ready().exists_async(path)) is None:
            with suppress(NodeExistsError):  # another broker was faster
                self._answer(self._ready().create_async(path, None, self._acl))

    def close(self) -> bool:
        """Ends the session, and with it this broker's liveness. False where no server has heard of
        it: then it ends by its time-out."""
        self._closing = True
        heard = self.connected.is_set()

        def lose_patience() -> None:
            nonlocal heard
            heard = False
            self._sockets.drop()

        # kazoo waits for the server's goodbye; a silent server must not hold a stop up.
        impatience = threading.Timer(CLOSE_SECONDS_MAX, lose_patience)
        impatience.daemon = True
        impatience.start()
        try:
            self.client.stop()
            self.client.close()
        finally:
            impatience.cancel()
            self.connected.set()  # for who waits: the client refuses what it is asked now
        return heard

    def drop(self) -> None:
        """The server has been silent for too long."""
        self._sockets.drop()

    def revive(self) -> None:
        """kazoo gives up for good after an error of its own: then it is started again."""
        if self.client.client_state == KeeperState.CLOSED and not self._closing:
            self.client.start_async()

    def _state_changed(self, state: str) -> None:
        """On kazoo's thread; only takes note."""
        if state == KazooState.CONNECTED:
            session, _ = self.client.client_id or (0, b"")
            log.info("connected to ZooKeeper, session %#x", session)
            self.connected.set()
            self._opened.set()
            self._on_connected()
            return
        self.connected.clear()
        if self._closing:
            return
        if state == KazooState.LOST:
            self.session_count += 1
            log.warning("the session with ZooKeeper has ended")
            self._on_session_lost()
        else:
            log.warning("the connection to ZooKeeper is lost")

    def _granted(self, timeout_ms: int) -> None:
        """On kazoo's thread, before it says that it is connected."""
        wanted_ms = self._settings.session_timeout_ms
        if timeout_ms not in (wanted_ms, self.session_timeout_ms):
            log.warning(
                "zookeeper.session.timeout.ms is %d, ZooKeeper grants %d", wanted_ms, timeout_ms
            )
        self.session_timeout_ms = timeout_ms

    @property
    def session_id(self) -> int | None:
        identity = self.client.client_id
        return None if identity is None else identity[0]

    # -- reading ----------------------------------------------------------------------------

    def read(self, path: str) -> Read | None:
        return self.read_all([path])[0]

    def read_all(self, paths: Sequence[str]) -> list[Read | None]:
        found = self._all(self.client.get_async, paths)
        return [None if one is None else Read(*one) for one in found]

    def children(self, path: str, watcher: Watcher | None = None) -> list[str] | None:
        try:
            return self._answer(self._ready().get_children_async(self._full(path), watcher))
        except NoNodeError:
            return None

    def children_of_all(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._all(self.client.get_children_async, paths)

    def stat(self, path: str, watcher: Watcher | None = None) -> ZnodeStat | None:
        return self._answer(self._ready().exists_async(self._full(path), watcher))

    def sync(self) -> None:
        """What is read after this is as new as anything that was written before it."""
        self._answer(self.sync_later())

    def sync_later(self) -> AsyncResult[str]:
        return self._ready().sync_async(self._full("/"))

    def _all(self, ask: Callable[[str], AsyncResult[R]], paths: Sequence[str]) -> list[R | None]:
        """Many at once; None where there is no such node."""
        answers: list[R | None] = []
        for begin in range(0, len(paths), REQUESTS_AT_ONCE):
            self._ready()
            asked = [ask(self._full(path)) for path in paths[begin : begin + REQUESTS_AT_ONCE]]
            for one in asked:
                try:
                    answers.append(self._answer(one))
                except NoNodeError:
                    answers.append(None)
        return answers

    # -- writing ----------------------------------------------------------------------------

    def multi(self, steps: Sequence[Step]) -> list[object]:
        """Each step's answer. Raises StepFailed and ChangeTooLarge (nothing has happened) and
        StoreUnavailable (nobody knows)."""
        size = sum(len(step.path) + len(step.content or b"") + STEP_BYTES for step in steps)
        if size > MULTI_BYTES_MAX:
            raise ChangeTooLarge(f"{size} bytes in one commit; at most {MULTI_BYTES_MAX}")
        transaction = self._ready().transaction()
        for step in steps:
            self._add(transaction, step)
        answers = self._answer(transaction.commit_async())
        for step, answer in zip(steps, answers, strict=True):
            if isinstance(answer, NoAuthError | InvalidACLError):
                raise StoreRefused(f"ZooKeeper lets this broker not change {step.path}")
            if isinstance(answer, Exception) and not isinstance(
                answer, RolledBackError | RuntimeInconsistency
            ):
                raise StepFailed(step, answer)
        return answers

    def _add(self, transaction: TransactionRequest, step: Step) -> None:
        path = self._chroot + step.path
        if step.action == CHECK:
            transaction.check(path, step.version)
        elif step.action == DELETE:
            transaction.delete(path, step.version)
        elif step.action == SET:
            transaction.set_data(path, step.content or b"", step.version)
        elif step.content is None:
            # A parent: no content at all, which kazoo's own method does not offer.
            transaction.operations.append(Create(path, None, self._acl, 0))
        else:
            transaction.create(path, step.content, self._acl, step.ephemeral, step.action != CREATE)

    # -- answers ----------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _ready(self) -> KazooClient:
        if not self.connected.wait(self._patience_s):
            raise StoreUnavailable(f"no connection to ZooKeeper at {self._settings.hosts}")
        return self.client

    def _answer(self, asked: AsyncResult[R]) -> R:
        try:
            return asked.get(timeout=self._answer_s)
        except (NoNodeError, NodeExistsError):
            raise
        except (NoAuthError, InvalidACLError) as cause:
            raise StoreRefused(
                "ZooKeeper does not let this broker in: look at ottla.zookeeper.digest, and give "
                "the cluster a path of its own in zookeeper.connect"
            ) from cause
        except Exception as cause:
            reason = type(cause).__name__
            raise StoreUnavailable(f"ZooKeeper did not answer ({reason})") from cause
