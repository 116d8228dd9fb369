"""`ottla consume`: records of topics as text, in any format, or as JSON lines.

By itself, from offsets that it is told, or with --group as a member of a consumer group
(`group_consume`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.group_consume import Commit, Consumption
from ottla.cli.group_member import consume_in_group
from ottla.cli.group_model import GroupProtocol, Membership
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Topics,
    command_app,
    complete_group,
    connect,
)
from ottla.cli.output import OutputFormat, check_somebody_reads, note, until_nobody_reads
from ottla.cli.pace import keep_pace
from ottla.cli.positions import AtOffset, Beginning, End, Position, parse_position
from ottla.cli.record_format import RecordFormat, compile_format
from ottla.cli.record_json import record_line
from ottla.cli.starting_points import Stretch, find_offsets, partitions_of

if TYPE_CHECKING:
    from ottla.cli.record_reader import RecordReader

app = command_app()
READ_TIMEOUT_S = 0.5


@app.command()
def consume(  # noqa: PLR0913 (every option of the command is one)
    topics: Topics,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="beginning|end|OFFSET|-N|@TIME",
            help="Where to start in each partition: -N is the last N records; @TIME is"
            " milliseconds since 1970, an ISO date and time, or -15m for so long ago.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, metavar="P", help="Only this one; repeatable."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max-records", "-n", min=1, metavar="N", help="Stop after N.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.")
    ] = False,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="See above.")
    ] = None,
    key: Annotated[bool, typer.Option("--key", help="Show the key, and a tab, first.")] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Show the headers, and a tab, first.")
    ] = False,
    null_marker: Annotated[
        str, typer.Option(metavar="TEXT", help="What stands for null in text output.")
    ] = "",
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="With records of open and aborted transactions.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="N", help="Records a second, at most and steadily."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            autocompletion=complete_group,
            help="As a member of this consumer group, from where it has committed.",
        ),
    ] = None,
    commit: Annotated[
        Commit | None,
        typer.Option(
            metavar="before|after|manual",
            help="Commit before records are shown (at most once), after (at least once), or"
            " only as --commit-every says.  [default: after]",
        ),
    ] = None,
    commit_every: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Records a commit.  [default: what comes at once]"),
    ] = None,
    protocol: Annotated[
        GroupProtocol | None,
        typer.Option(metavar="classic|consumer", help="How the group is run.  [default: classic]"),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A static member: keeps its place when it restarts."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell of partitions and commits on stderr.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Read records of topics.

    Stops at the end that each partition has at the start, or goes on and on with --follow. Records
    of one partition come in order. Nothing is committed, unless it reads as a member of a --group,
    which shares the partitions with the other members and goes on where it has committed.

    \b
    Fields of --format:
      %t topic   %p partition   %o offset    %e leader epoch   %T timestamp (ms)
      %k key     %v value       %h headers   %K %S bytes of key, value (-1: null)
      %{topic} %{partition} %{offset} %{epoch} %{timestamp} %{time} %{key}
      %{value} %{headers} %{header:NAME} %{key_size} %{value_size}
      \\n \\t \\r \\xNN as in C, %% a per cent sign

    \b
    Examples:
      ottla consume orders
      ottla consume orders --from -10 --follow --key
      ottla consume orders --from @2026-01-31T08:00:00Z --output json
      ottla consume orders payments --format '%{time} %t-%p@%o %k=%v\\n'
      ottla consume orders --group shop --follow --verbose
      ottla consume orders --group shop --commit before --max-records 10
    """
    write = _format(output, format_, null_marker, key=key, headers=headers)
    position = _position(start)
    names = list(dict.fromkeys(topics))
    if group is not None:
        membership = Membership(group, protocol, instance, _start_of_group(position, partition))
        consumption = Consumption(
            commit or Commit.after, commit_every, max_records, verbose=verbose, rate=rate
        )
        connection = connect(bootstrap, command_config)
        consume_in_group(
            connection, membership, names, write, consumption, follow=follow, all_=uncommitted
        )
        return
    _refuse_without_group(commit, commit_every, protocol, instance)
    connection = connect(bootstrap, command_config)
    partitions = partitions_of(connection.places(names), partition)
    stretches = find_offsets(connection, partitions, position, committed=not uncommitted)
    _warn_out_of_range(position, stretches)
    reader = connection.reader(committed=not uncommitted)
    work = Consuming(reader, write, sys.stdout.buffer, stretches, max_records, follow, rate=rate)
    try:
        with until_nobody_reads():
            work.run()
    except KeyboardInterrupt:
        # With --follow this is how it ends; without, people know that they cut it short.
        if not follow:
            raise
    finally:
        reader.close()


def _refuse_without_group(*options: object) -> None:
    if any(option is not None for option in options):
        raise typer.BadParameter(
            "--commit, --commit-every, --protocol and --instance need a --group"
        )


def _start_of_group(position: Position, partition: list[int] | None) -> str:
    if partition:
        raise typer.BadParameter(
            "the group decides who reads which partition", param_hint="--partition"
        )
    match position:
        case Beginning():
            return "beginning"
        case End():
            return "end"
        case _:
            raise typer.BadParameter(
                "with --group it is beginning or end, for partitions where the group has committed"
                " nothing; `ottla group reset` moves a group to any place",
                param_hint="--from",
            )


def _position(text: str) -> Position:
    try:
        return parse_position(text, time.time_ns() // 1_000_000)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--from") from cause


def _format(
    output: OutputFormat, text: str | None, null_marker: str, *, key: bool, headers: bool
) -> RecordFormat:
    if text is not None and (key or headers or output is OutputFormat.json):
        raise typer.BadParameter(
            "goes without --key, --headers and --output json", param_hint="--format"
        )
    if output is OutputFormat.json:
        return record_line
    if text is None:
        text = ("%h\\t" if headers else "") + ("%k\\t" if key else "") + "%v\\n"
    try:
        return compile_format(text, null_marker)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--format") from cause


def _warn_out_of_range(position: Position, stretches: dict[TopicPartition, Stretch]) -> None:
    if not isinstance(position, AtOffset):
        return
    for (topic, partition), stretch in stretches.items():
        if stretch.start != position.offset:
            note(
                f"{topic}-{partition} has no offset {position.offset} (it holds"
                f" {stretch.earliest} to {stretch.latest}); starting at {stretch.start}"
            )


class Consuming:
    def __init__(
        self,
        reader: RecordReader,
        write: RecordFormat,
        target: BinaryIO,
        stretches: dict[TopicPartition, Stretch],
        max_records: int | None,
        follow: bool,
        *,
        rate: float | None = None,
    ) -> None:
        self._wait: Callable[[], None] | None = None if rate is None else keep_pace(rate)
        self._reader = reader
        self._write = write
        self._target = target
        self._left = max_records
        self._follow = follow
        self._told_of_loss = False
        # Without --follow: where each partition ended at the start, so that a topic that is
        # written to all the time has an end too.
        self._open = {
            one: stretch.latest
            for one, stretch in stretches.items()
            if follow or stretch.start < stretch.latest
        }
        self._starts = {one: stretches[one].start for one in self._open}

    def run(self) -> None:
        if self._open:
            self._reader.assign(self._starts)
        while self._open and self._left != 0:
            events = self._reader.read(READ_TIMEOUT_S)
            for event in events:
                self._take(event)
            self._target.flush()
            if not events:
                check_somebody_reads(self._target)
            self._watch_connection()

    def _take(self, event: ReceivedRecord | EndReached) -> None:
        if isinstance(event, EndReached):
            if not self._follow:
                self._open.pop(event.partition, None)
            return
        one = (event.topic, event.partition)
        if self._left == 0 or one not in self._open:
            return
        end = self._open[one]
        if not self._follow and event.offset >= end - 1:
            del self._open[one]
            if event.offset >= end:
                return
        if self._wait is not None:
            self._target.flush()
            self._wait()
        self._target.write(self._write(event))
        if self._left is not None:
            self._left -= 1

    def _watch_connection(self) -> None:
        lost = self._reader.connection_lost
        if lost is None:
            self._told_of_loss = False
        elif not self._follow:
            raise Failure(f"the connection was lost before the end: {lost}")
        elif not self._told_of_loss:
            self._told_of_loss = True
            note(f"ottla: the connection is lost ({lost}); waiting for it to come back")
