"""A cluster as `ottla cluster up` starts it, on a ZooKeeper that runs, with the same doors as
`ottla.testing.Cluster`: so the rows of the feature list can be judged on either.

What differs: a killed broker is missed when its session has ended, time passes by itself and can
not be moved, and two that do not hear each other are one that is paused. The sessions of brokers
are short here, since they are killed.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.cli.cluster_control import ask_state, call
from tests.cluster import raw
from tests.cluster.waiting import until
from tests.cluster.zookeeper import RECONNECT
from tests.compat.nodes import COMPLAINT, OTTLA
from tests.patience import SECONDS_MAX, SHORT_SESSION_MS

SETTINGS = {
    "zookeeper.session.timeout.ms": SHORT_SESSION_MS,
    "leader.imbalance.check.interval.seconds": 5,
}


class AnyCluster(raw.Reachable, Protocol):
    """What the tests of rows do with a cluster."""

    @property
    def data_dir(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    def start(self, broker_id: int | None = None, /) -> object: ...
    def stop(self, broker_id: int | None = None, /) -> None: ...
    def kill(self, broker_id: int, /) -> None: ...
    def pause(self, broker_id: int, /) -> None: ...
    def resume(self, broker_id: int, /) -> None: ...
    def cut(self, one: int, other: int, /) -> None: ...
    def heal(self) -> None: ...
    def advance(self, *, seconds: float) -> None: ...
    def leader(self, topic: str, partition: int = 0, /) -> int: ...
    def in_sync(self, topic: str, partition: int = 0, /) -> set[int]: ...
    def controller(self) -> int: ...


class Clusters(Protocol):
    """Makes clusters, of one kind or the other."""

    def __call__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        racks: Sequence[str] | None = None,
    ) -> AbstractContextManager[AnyCluster]: ...


class ProcessCluster:
    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        racks: Sequence[str] | None = None,
    ) -> None:
        name = uuid.uuid4().hex
        self._data = directory / name
        self._log = directory / f"{name}.log"
        self._zookeeper = f"{zookeeper}/{name}"
        self._settings = {**SETTINGS, **(settings or {})}
        self._racks = racks
        self._up: subprocess.Popen[bytes] | None = None
        self._client = KazooClient(self._zookeeper, timeout=30.0, connection_retry=RECONNECT)
        self._away: dict[int, str] = {}
        self._may_complain: set[int] = set()
        self.broker_ids = list(range(1, brokers + 1))
        self._ports: dict[int, int] = {}

    def __enter__(self) -> ProcessCluster:
        options = [f"--brokers={len(self.broker_ids)}", f"--zookeeper={self._zookeeper}"]
        options += [f"--override={key}={value}" for key, value in self._settings.items()]
        if self._racks is not None:
            options += [f"--racks={','.join(self._racks)}"]
        where = ["--data", str(self._data), "--listen", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self._up = subprocess.Popen(
                [OTTLA, "cluster", "up", *where, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(self._is_up, "the cluster is up")
            self._client.start(SECONDS_MAX)
        except BaseException:
            self._end()
            raise
        for broker in ask_state(self._data).brokers:
            self._ports[broker.id] = int(broker.address.rpartition(":")[2])
        return self

    def _is_up(self) -> bool:
        assert self._up is not None
        said = self._log.read_text()
        assert self._up.poll() is None, said
        return "Ctrl-C" in said

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if kind is None:
            assert self._complaints() == []

    def _end(self) -> None:
        self._client.stop()
        self._client.close()
        assert self._up is not None
        self._up.terminate()
        try:
            self._up.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._up.kill()
            self._up.wait()
            subprocess.run([OTTLA, "cluster", "down", "--data", str(self._data)], check=False)

    def _complaints(self) -> list[str]:
        watched = [each for each in self.broker_ids if each not in self._may_complain]
        paths = [self._data / f"broker-{each}.log" for each in watched]
        texts = [path.read_text(errors="replace") for path in paths]
        return [line for text in texts for line in text.splitlines() if COMPLAINT.search(line)]

    # -- what is done to it -----------------------------------------------------------------

    def start(self, broker_id: int | None = None, /) -> None:
        for each in sorted(self._away) if broker_id is None else [broker_id]:
            call(self._data, "start", each)
            del self._away[each]

    def stop(self, broker_id: int | None = None, /) -> None:
        for each in self.broker_ids if broker_id is None else [broker_id]:
            call(self._data, "stop", each)
            self._away[each] = "stopped"

    def kill(self, broker_id: int, /) -> None:
        call(self._data, "kill", broker_id)
        self._away[broker_id] = "killed"

    def ended(self, broker_id: int, /) -> None:
        """It stopped by itself, for a reason that its log tells."""
        self._away[broker_id] = "ended"
        self._may_complain.add(broker_id)

    def pause(self, broker_id: int, /) -> None:
        call(self._data, "pause", broker_id)
        self._away[broker_id] = "paused"

    def resume(self, broker_id: int, /) -> None:
        call(self._data, "resume", broker_id)
        del self._away[broker_id]

    def cut(self, one: int, other: int, /) -> None:
        self.pause(other)

    def heal(self) -> None:
        for broker_id in [each for each, how in self._away.items() if how == "paused"]:
            self.resume(broker_id)

    def advance(self, *, seconds: float) -> None:
        time.sleep(seconds)

    # -- what is seen of it -----------------------------------------------------------------

    @property
    def data_dir(self) -> str:
        return str(self._data)

    def said(self) -> str:
        """What `ottla cluster up` has told so far."""
        return self._log.read_text()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def port(self, broker_id: int, /) -> int:
        return self._ports[broker_id]

    def leader(self, topic: str, partition: int = 0, /) -> int:
        return int(self._state(topic, partition)["leader"])

    def in_sync(self, topic: str, partition: int = 0, /) -> set[int]:
        return set(self._state(topic, partition)["isr"])

    def controller(self) -> int:
        try:
            return int(self._node("/controller")["brokerid"])
        except NoNodeError:
            return -1

    def _node(self, path: str) -> dict[str, Any]:
        content, _ = self._client.get(path)
        found: dict[str, Any] = json.loads(content or b"")
        return found

    def _state(self, topic: str, partition: int) -> dict[str, Any]:
        """As ZooKeeper has it, once every broker that can be asked says the same."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        found: dict[str, Any] = {}

        def agreed() -> bool:
            found.update(self._node(path))
            # Clients are told of no in-sync set while nobody leads, as Kafka tells them.
            in_sync = set() if found["leader"] == -1 else set(found["isr"])
            wanted = (found["leader"], found["leader_epoch"], in_sync)
            asked = [each for each in self.broker_ids if each not in self._away]
            return all(self._told(each, topic, partition) == wanted for each in asked)

        until(agreed, f"all say the same of {topic}-{partition} as ZooKeeper: {found}")
        return found

    def _told(self, broker_id: int, topic: str, partition: int) -> tuple[int, int, set[int]] | None:
        for part in raw.metadata(self, broker_id, topic).topics[0].partitions:
            if int(part.partition_index) == partition:
                return int(part.leader_id), int(part.leader_epoch), set(map(int, part.isr_nodes))
        return None


def of_processes(directory: Path, zookeeper: str) -> Callable[..., ProcessCluster]:
    def made(brokers: int = 3, *arguments: Any, **options: Any) -> ProcessCluster:
        return ProcessCluster(directory, zookeeper, brokers, *arguments, **options)

    return made
