"""`ottla reassign`: move replicas between brokers, while clients go on."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.failure import INTERRUPTED, Failure
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Topics,
    command_group,
    read_properties,
)
from ottla.cli.output import OutputFormat, note, plural, print_json
from ottla.cli.reassign_plan import Plan, parse_plan, plan_document, spread
from ottla.cli.tables import print_table

if TYPE_CHECKING:
    from ottla.cli.reassign_run import Reassigner

app = command_group("Move replicas between brokers.")

PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A plan in Kafka's JSON; - is standard input.")
]


@app.command()
def generate(
    topics: Topics,
    *,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="1,2,3", help="Brokers to use.  [default: all that are there]"),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="[default: as many as there are]")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
) -> None:
    """Print a plan that spreads topics evenly, with as few moves as possible.

    Nothing is moved. Brokers that are not named lose their replicas: that is how one is emptied.

    \b
    Examples:
      ottla reassign generate orders > plan.json
      ottla reassign generate orders payments --brokers 1,2,3 > plan.json
      ottla reassign generate orders --replication-factor 3 > plan.json
    """
    with _reassigner(bootstrap, command_config) as reassigner:
        racks = reassigner.racks()
        if brokers is not None:
            wanted = _broker_ids(brokers)
            unknown = [one for one in wanted if one not in racks]
            if unknown:
                raise Failure(f"broker {unknown[0]} is not there")
            racks = {one: racks[one] for one in wanted}
        current = reassigner.current(dict.fromkeys(topics))
    plan = spread(current, racks, replication_factor)
    print_json(plan_document(plan))
    moved = sum(len(set(plan[place]) - set(current[place])) for place in plan)
    note(f"{plural(moved, 'replica')} would move")


@app.command()
def execute(
    plan_file: PlanFile,
    *,
    throttle: Annotated[
        int | None,
        typer.Option(min=1, metavar="BYTES", help="At most so much a second for each broker."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Follow the moves to their end.")] = True,
    before: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a plan that leads back, before anything moves."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Move replicas as a plan says, and show how far that is.

    Clients go on meanwhile. Ctrl-C ends the looking and not the moving.

    \b
    Examples:
      ottla reassign execute plan.json
      ottla reassign execute plan.json --throttle 50000000 --before back.json
      ottla reassign execute plan.json --no-wait
    """
    plan = _read_plan(plan_file)
    with _reassigner(bootstrap, command_config) as reassigner:
        if before is not None:
            current = reassigner.current(dict.fromkeys(topic for topic, _ in plan))
            back = {place: current[place] for place in plan if place in current}
            _write(before, back)
        reassigner.begin(plan, throttle)
        if wait:
            _follow(reassigner, plan)
            if throttle is not None:
                reassigner.unthrottle(topic for topic, _ in plan)
    if output is OutputFormat.json:
        print_json({"partitions": len(plan), "complete": wait})
    elif wait:
        print(f"moved {plural(len(plan), 'partition')}")
    else:
        print(f"began to move {plural(len(plan), 'partition')}")


def _follow(reassigner: Reassigner, plan: Plan) -> None:
    from ottla.cli import reassign_progress  # noqa: PLC0415 (only who waits needs it)

    try:
        reassign_progress.show(reassigner.follow(plan))
    except KeyboardInterrupt:
        note("the moves go on: ottla reassign status shows them, verify ends their throttle")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def verify(
    plan_file: PlanFile,
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Tell how far a plan is; once it is done, the throttle of its topics ends.

    \b
    Examples:
      ottla reassign verify plan.json
      ottla reassign verify plan.json --output json
    """
    plan = _read_plan(plan_file)
    with _reassigner(bootstrap, command_config) as reassigner:
        moving = reassigner.under_way()
        current = reassigner.current(dict.fromkeys(topic for topic, _ in plan))
        states = {place: _state(place, plan, current, place in moving) for place in plan}
        if not any(place in moving for place in plan):
            reassigner.unthrottle(topic for topic, _ in plan)
    if output is OutputFormat.json:
        print_json(
            [
                {"topic": topic, "partition": partition, "state": state}
                for (topic, partition), state in states.items()
            ]
        )
        return
    print_table(
        ["TOPIC", "PARTITION", "WANTED", "STATE"],
        [(*place, ",".join(map(str, plan[place])), state) for place, state in states.items()],
    )


def _state(place: tuple[str, int], plan: Plan, current: Plan, moving: bool) -> str:
    if moving:
        return "moving"
    if place not in current:
        return "missing"
    return "done" if current[place] == plan[place] else "elsewhere"


@app.command()
def status(
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show the moves that are under way.

    \b
    Examples:
      ottla reassign status
      ottla reassign status --output json
    """
    with _reassigner(bootstrap, command_config) as reassigner:
        moves = sorted(reassigner.under_way().items())
    if output is OutputFormat.json:
        print_json(
            [
                {"topic": topic, "partition": partition, "replicas": move.replicas}
                | {"adding": move.adding, "removing": move.removing}
                for (topic, partition), move in moves
            ]
        )
        return
    print_table(
        ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"],
        [(*place, *(",".join(map(str, some)) or "-" for some in move)) for place, move in moves],
    )


@app.command()
def cancel(
    plan_file: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="Only the partitions of this plan; else all."),
    ] = None,
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Stop moves that are under way: replicas stay where they were. Ends their throttle too.

    \b
    Examples:
      ottla reassign cancel
      ottla reassign cancel plan.json
    """
    plan = None if plan_file is None else _read_plan(plan_file)
    with _reassigner(bootstrap, command_config) as reassigner:
        places = reassigner.cancel(plan)
        if places:
            reassigner.unthrottle(topic for topic, _ in places)
    if output is OutputFormat.json:
        print_json([{"topic": topic, "partition": partition} for topic, partition in places])
    else:
        print(f"cancelled {plural(len(places), 'move')}")


def _reassigner(bootstrap: str, command_config: Path | None) -> AbstractContextManager[Reassigner]:
    from ottla.cli.reassign_run import reassigner  # noqa: PLC0415 (help needs none of it)

    settings = {} if command_config is None else read_properties(command_config)
    return reassigner(bootstrap, settings)


def _broker_ids(text: str) -> list[int]:
    try:
        return sorted({int(one) for one in text.split(",")})
    except ValueError as cause:
        raise typer.BadParameter(
            f"{text!r} should look like 1,2,3", param_hint="--brokers"
        ) from cause


def _read_plan(path: Path) -> Plan:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as cause:
        raise Failure(f"{path} cannot be read: {cause}") from cause
    return parse_plan(text, str(path))


def _write(path: Path, plan: Plan) -> None:
    try:
        path.write_text(json.dumps(plan_document(plan), indent=2) + "\n")
    except OSError as cause:
        raise Failure(f"{path} cannot be written: {cause}") from cause
