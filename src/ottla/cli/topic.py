"""`ottla topic`: make, see, change and delete topics, and see or delete their records."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ottla.cli import topic_view
from ottla.cli.each import do_each, is_refusal
from ottla.cli.failure import Failure
from ottla.cli.model import NewTopic
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Topic,
    Topics,
    Yes,
    command_group,
    confirm,
    connect,
    parse_pairs,
)
from ottla.cli.output import OutputFormat, print_json
from ottla.cli.positions import End, Position, parse_position
from ottla.cli.starting_points import find_offsets, partitions_of
from ottla.cli.tables import print_table
from ottla.protocol.error_codes import TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION

app = command_group("Create, see, change and delete topics.")

# What the protocol has room for.
PARTITIONS_MAX = BROKER_ID_MAX = 2**31 - 1
REPLICATION_FACTOR_MAX = 2**15 - 1

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A topic setting; repeatable."),
]


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more new names.")],
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=PARTITIONS_MAX,
            metavar="N",
            help="[default: the broker's]",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, max=REPLICATION_FACTOR_MAX, metavar="N", help="[default: the broker's]"
        ),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            metavar="1:2,2:3", help="Brokers of each partition in turn, the preferred leader first."
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is fine.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Create topics.

    \b
    Examples:
      ottla topic create orders
      ottla topic create orders --partitions 6 --config retention.ms=86400000
      ottla topic create state --config cleanup.policy=compact --if-not-exists
      ottla topic create pinned --replica-assignment 1:2,2:3
    """
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and (partitions or replication_factor):
        raise typer.BadParameter(
            "says all about the partitions already", param_hint="--replica-assignment"
        )
    configs = parse_pairs(config or [], "--config")
    connection = connect(bootstrap, command_config)

    def create_one(name: str) -> bool:
        wanted = NewTopic(name, partitions, replication_factor, assignment, configs)
        try:
            connection.create_topic(wanted)
        except Failure as failure:
            # By what it is told, not by a look before: somebody else may make it meanwhile.
            if if_not_exists and is_refusal(failure, TOPIC_ALREADY_EXISTS):
                return False
            raise
        return True

    do_each("topic", names, create_one, done="created", otherwise="is there", output=output)


@app.command("list")
def list_topics(
    *,
    internal: Annotated[
        bool, typer.Option("--internal", help="With the cluster's own topics (__...).")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """List topics with their partitions and replicas.

    \b
    Examples:
      ottla topic list
      ottla topic list --internal --output json
    """
    topics = [
        topic
        for topic in connect(bootstrap, command_config).topics()
        if internal or not topic.internal
    ]
    if output is OutputFormat.json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "partitions": topic.partition_count,
                    "replication_factor": topic.replication_factor,
                    "internal": topic.internal,
                }
                for topic in topics
            ]
        )
        return
    print_table(
        ["TOPIC", "PARTITIONS", "REPLICAS"],
        [(topic.name, topic.partition_count, topic.replication_factor) for topic in topics],
    )


@app.command()
def describe(
    names: Topics,
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show partitions, offsets and settings of topics.

    With leader, replicas and size of each partition, and the settings that are not the default.

    \b
    Examples:
      ottla topic describe orders
      ottla topic describe orders payments --output json
    """
    described = topic_view.describe_topics(connect(bootstrap, command_config), names)
    if output is OutputFormat.json:
        print_json(described)
    else:
        topic_view.show_topics(described)


@app.command()
def alter(
    name: Topic,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=PARTITIONS_MAX, metavar="N", help="The new number."
        ),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Back to the default; repeatable."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Add partitions to a topic, or change its settings.

    New partitions take new records only: a key may then land in another partition than before.

    \b
    Examples:
      ottla topic alter orders --partitions 12
      ottla topic alter orders --config retention.ms=3600000
      ottla topic alter orders --delete-config retention.ms
    """
    changes = parse_pairs(config or [], "--config")
    deletions = delete_config or []
    if partitions is None and not changes and not deletions:
        raise typer.BadParameter(
            "nothing to change: give --partitions, --config or --delete-config"
        )
    connection = connect(bootstrap, command_config)
    if changes or deletions:
        connection.alter_configs("topic", name, changes, deletions)
    if partitions is not None:
        connection.add_partitions(name, partitions)
    if output is OutputFormat.json:
        print_json({"topic": name, "partitions": partitions, "set": changes, "deleted": deletions})
    else:
        print(f"altered {name}")


@app.command()
def delete(
    names: Topics,
    *,
    yes: Yes = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is fine.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Delete topics with all their records.

    Asks first on a terminal.

    \b
    Examples:
      ottla topic delete orders
      ottla topic delete orders payments --yes
    """
    connection = connect(bootstrap, command_config)
    there = {topic.name for topic in connection.topics()}
    doomed = [name for name in dict.fromkeys(names) if name in there]
    if not there.issuperset(names) and not if_exists:
        connection.places(names)
    if doomed:
        confirm(f"Delete {', '.join(doomed)} and all records in it?", yes)

    def delete_one(name: str) -> bool:
        if name not in there:
            return False
        try:
            connection.delete_topic(name)
        except Failure as failure:
            if if_exists and is_refusal(failure, UNKNOWN_TOPIC_OR_PARTITION):
                return False
            raise
        return True

    do_each("topic", names, delete_one, done="deleted", output=output)


@app.command()
def records(
    name: Topic,
    *,
    delete_before: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSET|-N|@TIME",
            help="Delete what lies before this offset or time, or all but the last N.",
        ),
    ] = None,
    delete_all: Annotated[bool, typer.Option("--delete-all", help="Delete all there is.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, metavar="P", help="Only this one; repeatable."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show which offsets a topic holds, or delete records.

    Offsets are never used again: the next record goes on where the last one was.

    \b
    Examples:
      ottla topic records orders
      ottla topic records orders --delete-before 1000 --partition 0
      ottla topic records orders --delete-before @-7d
      ottla topic records orders --delete-all --yes
    """
    position = _wanted_position(delete_before, delete_all)
    connection = connect(bootstrap, command_config)
    partitions = partitions_of(connection.places([name]), partition)
    if position is not None:
        confirm(f"Delete records of {name}?", yes)
        connection.delete_records(
            {
                one: found.start
                for one, found in find_offsets(connection, partitions, position).items()
            }
        )
    rows = topic_view.held_offsets(connection, partitions)
    if output is OutputFormat.json:
        print_json(rows)
    else:
        print_table(
            ["PARTITION", "EARLIEST", "LATEST", "OFFSETS"],
            [
                (row["partition"], row["earliest_offset"], row["latest_offset"], row["offsets"])
                for row in rows
            ],
        )


def _wanted_position(delete_before: str | None, delete_all: bool) -> Position | None:
    if delete_all and delete_before is not None:
        raise typer.BadParameter("give one of --delete-before and --delete-all")
    if delete_all:
        return End()
    if delete_before is None:
        return None
    try:
        return parse_position(delete_before, time.time_ns() // 1_000_000)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--delete-before") from cause


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3`: the replicas of partition 0 are 1 and 2, those of partition 1 are 2 and 3."""
    try:
        assignment = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError as cause:
        raise typer.BadParameter(
            f"{text!r} should look like 1:2,2:3", param_hint="--replica-assignment"
        ) from cause
    if max(max(replicas) for replicas in assignment) > BROKER_ID_MAX:
        raise typer.BadParameter(
            f"{text!r}: no broker has such an id", param_hint="--replica-assignment"
        )
    if len({len(replicas) for replicas in assignment}) != 1:
        raise typer.BadParameter(
            "every partition needs the same number of replicas", param_hint="--replica-assignment"
        )
    return assignment
