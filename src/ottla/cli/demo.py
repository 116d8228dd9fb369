"""`ottla demo`: what an event log does, shown with real processes."""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.admin_door import client_settings, open_admin
from ottla.cli.failure import Failure
from ottla.cli.options import CommandConfig, command_group, connect, read_properties
from ottla.cli.output import until_nobody_reads

if TYPE_CHECKING:
    from ottla.cli.connection import Connection
    from ottla.cli.demos.greetings import Stage
    from ottla.cli.demos.teller import Teller

app = command_group("See what an event log does.")

# Ours may be as quick as it likes; elsewhere six seconds is the least that a broker usually takes.
SESSION_TIMEOUT_MS = 1_000
SESSION_TIMEOUT_ELSEWHERE_MS = 6_000


@app.callback()
def describe() -> None:
    """See what an event log does."""


@app.command()
def greetings(
    *,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses on a terminal.")] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT[,...]",
            help="Brokers to play it on.  [default: one of its own, gone afterwards]",
        ),
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Tell the story of "Hello, world!" on the topic Greetings.

    Produced, stored, consumed; then a consumer that is killed before its commit (delivered twice)
    and one that commits first (never twice); two groups that each get everything; a rebalance.
    Starts a broker of its own in a temporary directory, and ends by itself. The last line has the
    figures. On other brokers the topic and its groups are deleted afterwards.

    \b
    Examples:
      ottla demo greetings
      ottla demo greetings --fast
      ottla demo greetings --bootstrap-server 127.0.0.1:9092
    """
    from ottla.cli.demos.greetings import Greetings  # noqa: PLC0415 (help needs none of it)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        stack.enter_context(until_nobody_reads())
        if bootstrap is None:
            stage = _own_stage(stack)
        else:
            stage = _stage_elsewhere(stack, bootstrap, command_config)
        story = Greetings(_teller(fast), stage)
        stack.callback(story.close)
        story.tell()


@app.command("exactly-once")
def exactly_once(
    *,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses on a terminal.")] = False,
    kills: Annotated[int, typer.Option(min=0, max=1_000, help="How often each job dies.")] = 5,
    records: Annotated[int, typer.Option(min=1, max=1_000_000, help="To be copied.")] = 600,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT[,...]",
            help="Brokers to play it on.  [default: one of its own, gone afterwards]",
        ),
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Kill a job that copies a topic, at random moments, and count what came twice or never.

    First without transactions (committing its position after it has written, then before), then
    with. Starts a broker of its own in a temporary directory, and ends by itself. The last line has
    the figures. On other brokers its topics and groups are deleted afterwards.

    \b
    Examples:
      ottla demo exactly-once
      ottla demo exactly-once --kills 20 --records 3000
      ottla demo exactly-once --bootstrap-server 127.0.0.1:9092
    """
    from ottla.cli.demos.exactly_once import ExactlyOnce, Scene  # noqa: PLC0415 (the same)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        stack.enter_context(until_nobody_reads())
        where, is_ours = bootstrap or "", bootstrap is None
        if is_ours:
            where = _own_broker(stack)
        admin = stack.enter_context(open_admin(where, command_config))
        scene = Scene(
            admin,
            client_settings(where, command_config),
            where,
            "-" if command_config is None else str(command_config),
            f"exactly-once-{secrets.token_hex(3)}",
            kills,
            records,
        )
        if not is_ours:
            stack.callback(scene.clean_up)
        story = ExactlyOnce(_teller(fast), scene)
        stack.callback(story.close)
        story.tell()


def _own_broker(stack: contextlib.ExitStack) -> str:
    from ottla.cli.demos.own_broker import OwnBroker  # noqa: PLC0415 (help needs none of it)

    return stack.enter_context(OwnBroker()).bootstrap


@app.command("order-events")
def order_events(
    *, fast: Annotated[bool, typer.Option("--fast", help="No pauses on a terminal.")] = False
) -> None:
    """Kill the leader of a partition while orders come in, and count what was lost.

    Three brokers with a ZooKeeper, the topic order-events with three partitions on all of them, a
    producer with acks=all, a group of three consumers. The last line has the figures. Needs Java
    for ZooKeeper; starts everything in a temporary directory, and ends by itself.

    \b
    Examples:
      ottla demo order-events
      ottla demo order-events --fast
    """
    from ottla.cli.demos.order_events import OrderEvents  # noqa: PLC0415 (help needs none of it)
    from ottla.cli.demos.own_cluster import OwnCluster  # noqa: PLC0415 (the same)

    with _ended_by_signals(), until_nobody_reads(), OwnCluster() as cluster:
        story = OrderEvents(_teller(fast), cluster)
        with contextlib.closing(story):
            story.tell()


@app.command()
def acks(
    *, fast: Annotated[bool, typer.Option("--fast", help="No pauses on a terminal.")] = False
) -> None:
    """Show what acks=0, 1 and all lose when brokers die, with and without unclean election.

    Three brokers with a ZooKeeper, six topics with a choice each, two disasters. The last line has
    the orders that were promised and are gone. Needs Java for ZooKeeper; starts everything in a
    temporary directory, and ends by itself.

    \b
    Examples:
      ottla demo acks
      ottla demo acks --fast
    """
    from ottla.cli.demos.acks import Acks  # noqa: PLC0415 (help needs none of it)
    from ottla.cli.demos.own_cluster import OwnCluster  # noqa: PLC0415 (the same)

    with _ended_by_signals(), until_nobody_reads(), OwnCluster() as cluster:
        story = Acks(_teller(fast), cluster)
        with contextlib.closing(story):
            story.tell()


def _teller(fast: bool) -> Teller:
    from ottla.cli.demos.teller import PlainTeller, TerminalTeller  # noqa: PLC0415 (the same)
    from ottla.cli.tables import console  # noqa: PLC0415 (the same)

    return TerminalTeller(console(), fast=fast) if sys.stdout.isatty() else PlainTeller()


def _own_stage(stack: contextlib.ExitStack) -> Stage:
    from ottla.cli.demos.greetings import Stage  # noqa: PLC0415 (the same)
    from ottla.cli.demos.own_broker import OwnBroker  # noqa: PLC0415 (the same)

    broker = stack.enter_context(OwnBroker())
    connection = connect(broker.bootstrap, None)
    return Stage(
        connection, broker.bootstrap, broker.directory, {}, SESSION_TIMEOUT_MS, broker.data
    )


def _stage_elsewhere(
    stack: contextlib.ExitStack, bootstrap: str, command_config: Path | None
) -> Stage:
    from ottla.cli.demos.greetings import GROUPS, TOPIC, Stage  # noqa: PLC0415 (the same)

    connection = connect(bootstrap, command_config)
    if TOPIC in {topic.name for topic in connection.topics()}:
        raise Failure(f"there is a topic {TOPIC} already: the demo would spoil it")
    taken = {one.group for one in connection.group_admin().groups()} & set(GROUPS)
    if taken:
        raise Failure(f"there is a group {min(taken)} already: the demo would spoil it")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-demo-")))
    given = {} if command_config is None else read_properties(command_config)
    stack.callback(_clean_up, connection)
    return Stage(connection, bootstrap, directory, given, SESSION_TIMEOUT_ELSEWHERE_MS, None)


def _clean_up(connection: Connection) -> None:
    from ottla.cli.demos.greetings import GROUPS, TOPIC  # noqa: PLC0415 (the same)

    for group in GROUPS:
        # What the story did not come to does not exist.
        with contextlib.suppress(Failure):
            connection.group_admin().delete(group)
    with contextlib.suppress(Failure):
        connection.delete_topic(TOPIC)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Every way out leads past the broker and the members, which must not stay behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
