"""The other side of `ottla cluster up`: finds a directory's cluster and tells it what to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottla.cli.cluster_files import (
    STATE_FILE,
    BrokerState,
    ClusterState,
    is_ours,
    locked,
    read_state,
    socket_path,
)
from ottla.cli.failure import Failure

ANSWER_SECONDS_MAX = 300.0
END_SECONDS_MAX = 30.0
POLL_S = 0.05


def call(directory: Path, command: str, broker_id: int = 0) -> dict[str, Any]:
    """Returns when it is done."""
    try:
        with socket_path(directory) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS_MAX)
            connection.connect(path)
            connection.sendall(json.dumps({"command": command, "id": broker_id}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise no_cluster(directory) from None
    except TimeoutError:
        raise Failure(
            f"the cluster in {directory} did not answer within {ANSWER_SECONDS_MAX:g} s"
        ) from None
    if not line:
        raise Failure(f"the cluster in {directory} ended while it was asked")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise Failure(answer["error"])
    return answer


def ask_state(directory: Path) -> ClusterState:
    document = call(directory, "status")
    brokers = [BrokerState(**broker) for broker in document.pop("brokers")]
    return ClusterState(brokers=brokers, **document)


def no_cluster(directory: Path) -> Failure:
    left = leftovers(directory)
    if left:
        pids = ", ".join(map(str, left))
        return Failure(
            f"the cluster in {directory} has lost the process that looked after it; what is left "
            f"(pids {pids}) ends with `ottla cluster down --data {directory}`"
        )
    return Failure(
        f"no cluster runs in {directory}; start one with `ottla cluster up --data {directory}`"
    )


def leftovers(directory: Path) -> list[int]:
    """Processes whose process in the foreground was killed: brokers, then ZooKeeper."""
    state = read_state(directory) if directory.is_dir() else None
    if state is None:
        return []
    brokers = [
        broker.pid
        for broker in state.brokers
        if broker.pid is not None and is_ours(broker.pid, broker.data_dir)
    ]
    servers = [pid for pid in state.zookeeper_pids if is_ours(pid, str(directory.resolve()))]
    return brokers + servers


def down(directory: Path) -> None:
    try:
        call(directory, "down")
    except Failure:
        if not leftovers(directory):
            raise
        end_leftovers(directory)
    # The process in the foreground has answered; it lets go of the directory as it ends.
    deadline = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with locked(directory):
                return
        except Failure:
            time.sleep(POLL_S)


def end_leftovers(directory: Path) -> None:
    """Brokers before ZooKeeper; a clean stop needs it."""
    for pid in leftovers(directory):
        deadline = time.monotonic() + END_SECONDS_MAX
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)
            while pid in leftovers(directory):
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(POLL_S)
    (directory / STATE_FILE).unlink(missing_ok=True)
