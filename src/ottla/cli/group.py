"""`ottla group`: see consumer groups, their members and their lag; reset and delete them."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from ottla.cli import group_view
from ottla.cli.each import do_each
from ottla.cli.group_lag import Snapshot, lag_table, rows_of, take_snapshot
from ottla.cli.group_model import STATES, GroupProtocol
from ottla.cli.group_reset_command import reset
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Groups,
    Output,
    Yes,
    command_group,
    complete_group,
    confirm,
    connect,
)
from ottla.cli.output import OutputFormat, note, print_json
from ottla.cli.tables import print_rich, print_table

app = command_group("See, reset and delete consumer groups, their members and their lag.")


@app.command("list")
def list_groups(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only those (Stable, Empty, ...); repeatable."),
    ] = None,
    protocol: Annotated[
        GroupProtocol | None, typer.Option(metavar="classic|consumer", help="Only those.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """List consumer groups with their states.

    \b
    Examples:
      ottla group list
      ottla group list --state Stable --state Empty --output json
    """
    states = {_state(text) for text in state or ()}
    groups = [
        one
        for one in connect(bootstrap, command_config).group_admin().groups()
        if (not states or one.state in states) and protocol in (None, one.protocol)
    ]
    if output is OutputFormat.json:
        print_json(
            [
                {"group": one.group, "state": one.state, "protocol": one.protocol}
                | {"simple": one.simple}
                for one in groups
            ]
        )
        return
    print_table(
        ["GROUP", "STATE", "PROTOCOL"], [(one.group, one.state, one.protocol) for one in groups]
    )


@app.command()
def describe(
    groups: Groups,
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show the partitions of groups: committed, lag, and whose they are.

    \b
    Examples:
      ottla group describe shop
      ottla group describe shop billing --output json
    """
    described = group_view.describe_groups(connect(bootstrap, command_config), groups)
    if output is OutputFormat.json:
        print_json(described)
    else:
        group_view.show_groups(described)


@app.command()
def members(
    groups: Groups,
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show the members of groups and which partitions each has.

    TARGET shows where partitions are going, while a group of the consumer protocol moves them.

    \b
    Examples:
      ottla group members shop
      ottla group members shop --output json
    """
    described = group_view.members_of_groups(connect(bootstrap, command_config), groups)
    if output is OutputFormat.json:
        print_json(described)
    else:
        group_view.show_members(described)


@app.command()
def lag(
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP", help="All unless said.", autocompletion=complete_group),
    ] = None,
    *,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="A row for each partition.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Between two looks.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Looks, then end.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show how many records groups have not yet committed.

    For every topic that a group has committed in: the sum over the partitions, and the worst of
    them. With --watch also what changed since the look before; a table on a terminal, lines
    elsewhere, and one JSON document a line with --output json.

    \b
    Examples:
      ottla group lag
      ottla group lag shop --partitions
      ottla group lag shop --watch --interval 1
      ottla group lag --watch --count 10 --output json
    """
    if count is not None and not watch:
        raise typer.BadParameter("goes with --watch", param_hint="--count")
    names = list(dict.fromkeys(groups or ()))
    connection = connect(bootstrap, command_config)

    def look() -> Snapshot:
        connection.refresh()
        return take_snapshot(connection, names)

    if watch:
        from ottla.cli.group_watch import LagWatch  # noqa: PLC0415 (only who watches needs it)

        view = LagWatch(
            look, interval_s=interval, count=count, by_partition=partitions, output=output
        )
        # Ctrl-C is how it ends.
        with contextlib.suppress(KeyboardInterrupt):
            view.run()
        return
    snapshot = take_snapshot(connection, names)
    rows = rows_of(snapshot, by_partition=partitions)
    if output is OutputFormat.json:
        print_json(rows)
        return
    for name in names:
        if not snapshot.committed[name]:
            note(f"group {name} has committed nothing")
    if rows or not names:
        print_rich(lag_table(rows, by_partition=partitions))


app.command()(reset)


@app.command()
def delete(
    groups: Groups,
    *,
    yes: Yes = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A group that is not there is fine.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Delete groups with all that they have committed.

    A group that has members is refused. Asks first on a terminal.

    \b
    Examples:
      ottla group delete shop
      ottla group delete shop billing --if-exists --yes
    """
    connection = connect(bootstrap, command_config)
    admin = connection.group_admin()
    names = list(dict.fromkeys(groups))
    there = {one.group for one in admin.groups()}
    doomed = [name for name in names if name in there]
    if len(doomed) < len(names) and not if_exists:
        group_view.existing_groups(connection, [name for name in names if name not in there])
    if doomed:
        confirm(f"Delete {', '.join(doomed)} and all that is committed?", yes)

    def delete_one(name: str) -> bool:
        if name not in there:
            return False
        admin.delete(name)
        return True

    do_each("group", names, delete_one, done="deleted", output=output)


def _state(text: str) -> str:
    """As brokers spell it."""
    for name in STATES:
        if name.lower() == text.lower():
            return name
    raise typer.BadParameter(f"{text} is none of {', '.join(STATES)}", param_hint="--state")
