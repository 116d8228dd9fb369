"""`ottla group reset`: from its options to a plan, and from the plan to commits if it is meant.

Nothing is changed without --execute. A group with members is refused, as in Kafka: they would
commit over it.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.group_model import DEAD, EMPTY
from ottla.cli.group_reset import (
    Change,
    Found,
    FromFile,
    Goal,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    csv_rows,
    parse_duration,
    parse_offsets,
    parse_topic,
    plan,
)
from ottla.cli.group_view import led_partitions
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Group,
    Output,
    complete_topic,
    connect,
)
from ottla.cli.output import OutputFormat, note, plural, print_json
from ottla.cli.positions import SinceTime, parse_position
from ottla.cli.starting_points import partitions_of
from ottla.cli.tables import print_table

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

WAYS = (
    "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration,"
    " --shift-by, --from-file"
)


def reset(
    group: Group,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            autocompletion=complete_topic,
            help="A topic, or these partitions of it; repeatable.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed in.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record there is.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Past the last record there is.")
    ] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Stay; where nothing is committed, to the end.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record not older than this ISO date and time (local unless it"
            " says otherwise) or milliseconds since 1970.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="To so long ago: PT1H30M, P7D, or 90m.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="N records on, or back if negative.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="To what this CSV says: topic,partition,offset."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it.  [default: only show what would change]")
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print the new offsets as CSV for --from-file.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Move the committed offsets of a group that has no members now.

    Shows what would change, and changes it with --execute. Where: --topic, --all-topics, or the
    partitions of --from-file. Where to: one of the ways below. An offset that does not exist
    becomes the nearest that does. A group that does not exist yet is made.

    \b
    Examples:
      ottla group reset shop --topic orders --to-earliest
      ottla group reset shop --topic orders:0,1 --to-offset 500 --execute
      ottla group reset shop --all-topics --by-duration PT1H --execute
      ottla group reset shop --all-topics --to-current --export > offsets.csv
      ottla group reset shop --from-file offsets.csv --execute
    """
    if export and output is OutputFormat.json:
        raise typer.BadParameter("goes without --output json", param_hint="--export")
    goals: list[Goal | None] = [
        ToEarliest() if to_earliest else None,
        ToLatest() if to_latest else None,
        ToCurrent() if to_current else None,
        None if to_offset is None else ToOffset(to_offset),
        None if to_datetime is None else _to_datetime(to_datetime),
        None if by_duration is None else _by_duration(by_duration),
        None if shift_by is None else ShiftBy(shift_by),
        None if from_file is None else _from_file(from_file),
    ]
    goal = _only_one(goals)
    topics = _topics(goal, topic or [], all_topics)
    connection = connect(bootstrap, command_config)
    changes = prepare(connection, group, goal, topics)
    if execute:
        offsets = {change.partition: change.new for change in changes}
        connection.group_admin().set_offsets(group, offsets)
    _show(group, changes, execute, export, output)


def _only_one(goals: Sequence[Goal | None]) -> Goal:
    given = [goal for goal in goals if goal is not None]
    if len(given) != 1:
        raise typer.BadParameter(f"give one of {WAYS}")
    return given[0]


def _to_datetime(text: str) -> ToTime:
    try:
        position = parse_position(f"@{text}", time.time_ns() // 1_000_000)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--to-datetime") from cause
    if not isinstance(position, SinceTime):
        raise typer.BadParameter(f"{text!r} is no time", param_hint="--to-datetime")
    # Kafka's tool takes a time without a zone for UTC, people for their own: say which it was.
    moment = datetime.fromtimestamp(position.timestamp_ms / 1_000, tz=UTC)
    note(f"{text} is {moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}")
    return ToTime(position.timestamp_ms)


def _by_duration(text: str) -> ToTime:
    try:
        return ToTime(max(0, time.time_ns() // 1_000_000 - parse_duration(text)))
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--by-duration") from cause


def _from_file(path: Path) -> FromFile:
    try:
        with path.open(newline="") as lines:
            return FromFile(parse_offsets(lines))
    except (OSError, ValueError) as cause:
        raise Failure(f"{path} cannot be taken: {cause}") from cause


def _topics(
    goal: Goal, texts: Sequence[str], all_topics: bool
) -> dict[str, list[int] | None] | None:
    """Partitions by topic (None: all of them); None for what the file or the group names."""
    if isinstance(goal, FromFile):
        if texts or all_topics:
            raise typer.BadParameter(
                "says the partitions already; it goes without --topic and --all-topics",
                param_hint="--from-file",
            )
        return None
    if bool(texts) == all_topics:
        raise typer.BadParameter("give one of --topic and --all-topics")
    try:
        named = [parse_topic(text) for text in texts]
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--topic") from cause
    return None if all_topics else _by_topic(named)


def _by_topic(
    named: Sequence[tuple[str, list[int] | None]],
) -> dict[str, list[int] | None]:
    """A topic may be named more than once: all that was named of it counts."""
    topics: dict[str, list[int] | None] = {}
    for name, partitions in named:
        before = topics.setdefault(name, [])
        if before is None or partitions is None:
            topics[name] = None
        else:
            before += (one for one in partitions if one not in before)
    return topics


def prepare(
    connection: Connection,
    group: str,
    goal: Goal,
    topics: dict[str, list[int] | None] | None,
) -> list[Change]:
    admin = connection.group_admin()
    (detail,) = admin.describe([group])
    if detail.state not in (EMPTY, DEAD):
        raise Failure(
            f"group {group}: offsets can only be reset while the group is inactive, but it is"
            f" {detail.state} with {plural(len(detail.members), 'member')}; stop them first"
        )
    committed = admin.committed([group])[group]
    if isinstance(goal, FromFile):
        wanted: dict[str, list[int] | None] = {}
        for name, partition in goal.offsets:
            of_topic = wanted.setdefault(name, [])
            assert of_topic is not None
            of_topic.append(partition)
        partitions = _partitions(connection, wanted)
    elif topics is not None:
        partitions = _partitions(connection, topics)
    else:
        partitions = _committed_partitions(connection, group, list(committed))
    found = _find(connection, goal, partitions, committed)
    try:
        return plan(goal, partitions, found)
    except ValueError as cause:
        raise Failure(f"group {group}: {cause}") from cause


def _partitions(
    connection: Connection, topics: dict[str, list[int] | None]
) -> list[TopicPartition]:
    return [
        one
        for place in connection.places(list(topics))
        for one in partitions_of([place], topics[place.name])
    ]


def _committed_partitions(
    connection: Connection, group: str, committed: list[TopicPartition]
) -> list[TopicPartition]:
    if not committed:
        raise Failure(f"group {group} has committed nothing; name topics with --topic")
    there = led_partitions(connection, {topic for topic, _ in committed})
    for topic, partition in sorted(set(committed) - there):
        note(f"{topic}-{partition} is left as it is: the partition is gone or has no leader now")
    return sorted(set(committed) & there)


def _find(
    connection: Connection,
    goal: Goal,
    partitions: list[TopicPartition],
    committed: dict[TopicPartition, int],
) -> Found:
    def ask(query: str | int) -> dict[TopicPartition, int]:
        answers = connection.offsets(dict.fromkeys(partitions, query), committed=False)
        return {one: answer.offset for one, answer in answers.items() if answer is not None}

    by_time = ask(goal.timestamp_ms) if isinstance(goal, ToTime) else {}
    return Found(ask("earliest"), ask("latest"), committed, by_time)


def _show(
    group: str, changes: Sequence[Change], executed: bool, export: bool, output: OutputFormat
) -> None:
    for change in changes:
        if change.asked is not None:
            place = "-".join(map(str, change.partition))
            note(f"{place} has no offset {change.asked}; the nearest is {change.new}")
    if output is OutputFormat.json:
        print_json(
            {
                "group": group,
                "executed": executed,
                "partitions": [
                    {
                        "topic": change.partition[0],
                        "partition": change.partition[1],
                        "current_offset": change.current,
                        "new_offset": change.new,
                    }
                    for change in changes
                ],
            }
        )
    elif export:
        csv.writer(sys.stdout, lineterminator="\n").writerows(csv_rows(changes))
    else:
        print_table(
            ["TOPIC", "PARTITION", "COMMITTED", "NEW"],
            [(*change.partition, change.current, change.new) for change in changes],
        )
    if not executed and not export:
        note("nothing is changed: this was a dry run, --execute does it")
