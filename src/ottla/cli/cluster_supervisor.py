"""`ottla cluster up`: the process in the foreground. Starts everything, watches, takes commands.

One event loop. Commands come by a socket in the cluster's directory, one JSON document a line, and
are answered when they are done. ZooKeeper is started first and stopped last; a ZooKeeper that ends
by itself is started again, since no command could do it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from ottla.base.errors import OttlaError
from ottla.cli.cluster_broker import BrokerProcess
from ottla.cli.cluster_files import ClusterState, socket_path, write_state
from ottla.cli.cluster_plan import ClusterPlan
from ottla.cli.cluster_zookeeper import OwnZooKeeper
from ottla.cli.failure import Failure
from ottla.cli.output import plural
from ottla.net.held_port import HeldPort

REQUEST_BYTES_MAX = 64 * 1024
ZOOKEEPER_LOOK_S = 1.0
KNOWN_SECONDS_MAX = 60.0
KNOWN_POLL_S = 0.05


class Supervisor:
    def __init__(
        self, plan: ClusterPlan, zookeeper: OwnZooKeeper | None, brokers_before: int
    ) -> None:
        self._plan = plan
        self._zookeeper = zookeeper
        self._brokers_before = brokers_before
        self._down = asyncio.Event()
        self._is_down = asyncio.Event()
        self._answering: set[asyncio.Task[Any]] = set()
        self._brokers = {
            broker_id: BrokerProcess(
                broker_id,
                address=plan.address(broker_id),
                data_dir=plan.data_dir(broker_id),
                log_path=plan.log_path(broker_id),
                command=plan.command(broker_id),
                on_change=self._write_state,
                tell=tell,
            )
            for broker_id in plan.broker_ids
        }

    async def run(self) -> None:
        """Until SIGINT, SIGTERM or `ottla cluster down`. Raises Failure when it can't start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._down.set)
        held = _hold_ports(self._plan)
        with socket_path(self._plan.directory) as path:
            server = await asyncio.start_unix_server(self._serve, path, limit=REQUEST_BYTES_MAX)
        reviving = asyncio.create_task(self._revive_zookeeper())
        try:
            await self._start_unless_down()
            await self._down.wait()
        finally:
            reviving.cancel()
            await self._stop()
            server.close()
            for port in held:
                port.close()
            self._is_down.set()
            await asyncio.gather(*self._answering)

    async def _start_unless_down(self) -> None:
        starting = asyncio.create_task(self._start())
        ending = asyncio.create_task(self._down.wait())
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if starting.done():
            starting.result()
            return
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting

    async def _start(self) -> None:
        """All at the same time."""
        async with asyncio.TaskGroup() as group:
            for broker in self._brokers.values():
                group.create_task(self._start_one(broker))
        await asyncio.to_thread(wait_until_known, self._plan)
        await asyncio.to_thread(grow, self._plan, self._brokers_before)
        tell(f"{plural(len(self._brokers), 'broker')} up; Ctrl-C stops the cluster")

    async def _start_one(self, broker: BrokerProcess) -> None:
        await broker.start()
        state = broker.describe()
        tell(f"broker {state.id} listens on {state.address} (pid {state.pid}, {state.data_dir})")

    async def _stop(self) -> None:
        await asyncio.gather(*(broker.end_for_good() for broker in self._brokers.values()))
        if self._zookeeper is not None:
            await asyncio.to_thread(self._zookeeper.stop)
        tell("the cluster has stopped")

    async def _revive_zookeeper(self) -> None:
        while self._zookeeper is not None:
            await asyncio.sleep(ZOOKEEPER_LOOK_S)
            for address in self._zookeeper.revive():
                self._write_state()
                tell(f"ZooKeeper at {address} had ended: started again")

    # -- commands ---------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._answering.add(this)
        try:
            line = await reader.readline()
            answer = await self._answer(line)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # whoever asked has gone, or said no line
        finally:
            self._answering.discard(this)
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return await self._do(str(request["command"]), int(request.get("id", 0)))
        except (ValueError, TypeError, KeyError):
            return {"error": "no command"}
        except OttlaError as failure:
            return {"error": str(failure)}

    async def _do(self, command: str, broker_id: int) -> dict[str, Any]:
        if command == "status":
            return self.state().document()
        if command == "down":
            self._down.set()
            await self._is_down.wait()
            return {}
        broker = self._brokers.get(broker_id)
        if broker is None:
            known = ", ".join(map(str, self._brokers))
            raise Failure(f"there is no broker {broker_id}; there are {known}")
        actions = {
            "start": broker.start,
            "stop": broker.stop,
            "kill": broker.kill,
            "pause": broker.pause,
            "resume": broker.resume,
        }
        await actions[command]()
        return {}

    def state(self) -> ClusterState:
        own = self._zookeeper
        return ClusterState(
            pid=os.getpid(),
            brokers=[broker.describe() for broker in self._brokers.values()],
            zookeeper=self._plan.zookeeper.partition("/")[0].split(","),
            zookeeper_pids=[] if own is None else own.pids(),
        )

    def _write_state(self) -> None:
        write_state(self._plan.directory, self.state())


def _hold_ports(plan: ClusterPlan) -> list[HeldPort]:
    """So that a broker that was stopped finds its port free when it comes back."""
    held = []
    for port in plan.ports:
        with suppress(OSError):  # the broker will say why
            held.append(HeldPort(plan.host, port))
    return held


def wait_until_known(plan: ClusterPlan) -> None:
    """Whoever connects to any broker is to find all of them."""
    from ottla.cli.connection import Connection  # noqa: PLC0415 (the client is slow to load)

    deadline = time.monotonic() + KNOWN_SECONDS_MAX
    for broker_id in plan.broker_ids:
        connection = Connection(plan.address(broker_id), {}, timeout_s=KNOWN_SECONDS_MAX)
        while len(connection.broker_addresses()) < len(plan.broker_ids):
            if time.monotonic() > deadline:
                raise Failure(f"broker {broker_id} does not know all the others")
            time.sleep(KNOWN_POLL_S)
            connection.refresh()


def grow(plan: ClusterPlan, brokers_before: int) -> None:
    from ottla.cli.cluster_growth import raise_min_in_sync  # noqa: PLC0415 (as above)

    done = raise_min_in_sync(plan, brokers_before)
    if done is not None:
        tell(done)


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
