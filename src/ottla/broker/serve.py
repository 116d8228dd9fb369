"""`ottla serve`: one broker in the foreground, from its settings to its end.

The end is a signal; or, in a cluster, the failure of its last log dir (F7).
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import sys
from contextlib import suppress

import uvloop

from ottla.base.errors import OttlaError, StorageError
from ottla.broker.config_file import load_broker_config
from ottla.broker.node import Node

log = logging.getLogger("ottla.broker")


def run(
    path: str | None = None,
    overrides: list[str] | None = None,
    data_dir: str | None = None,
    listen: str | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code; a refusal is one line on stderr, and
    so is an end that nobody asked for."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        loaded = load_broker_config(path, overrides or [], data_dir=data_dir, listen=listen)
        for warning in loaded.warnings:
            log.warning("%s", _in_one_line(warning))
        uvloop.run(_serve(Node(loaded.config)))
    except (OttlaError, OSError) as refused:
        with suppress(OSError):  # a full disk may take no line any more, either
            print(f"ottla serve: {_in_one_line(_in_words(refused))}", file=sys.stderr)
        return 1
    return 0


def _in_words(refused: OttlaError | OSError) -> str:
    """With what the system said about it, and what can be done."""
    cause = refused.__cause__
    if isinstance(refused, StorageError) and cause is not None:
        return f"{refused} ({cause})"
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return (
            f"{refused}; another broker may run there: stop it, or take another port with --listen"
        )
    return str(refused)


def _in_one_line(text: str) -> str:
    """Names and values of a file may hold line feeds and what else a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class NothingLeftToServe(OttlaError):
    """Every log dir has failed, while others can do without this broker."""


async def _serve(node: Node) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if not await node.start(stopping):
        log.warning("stopped before it took part in the cluster")
        return
    # What is there now stays: a collection that looks at all of it would stop the loop for long.
    gc.freeze()
    try:
        greet(node.greeting())
        await _first_of(stopping, node.useless)
        if not stopping.is_set():
            log.error("every log dir has failed: this broker hands over and stops")
    finally:
        await node.stop()
    if not stopping.is_set():
        raise NothingLeftToServe("stopped, since every log dir has failed: " + node.failures())


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def greet(greeting: str) -> None:
    """In one piece, for whoever waits for it. Where nobody can be told any more, a full disk or a
    pipe that is closed, the broker serves all the same."""
    try:
        sys.stdout.write(f"{greeting}\n")
        sys.stdout.flush()
    except OSError as failure:
        log.warning("the greeting could not be written: %s", failure)
