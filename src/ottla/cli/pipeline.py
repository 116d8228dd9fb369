"""`ottla pipeline`: make, run and watch pipelines on Spark."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.base.errors import OttlaError
from ottla.cli.failure import Failure
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Yes,
    command_group,
    confirm,
    read_properties,
)
from ottla.cli.output import OutputFormat, note, print_json
from ottla.cli.pipeline_child import run_child
from ottla.cli.pipeline_view import print_status, show_datasets, show_rows, status_document
from ottla.cli.tables import print_table

app = command_group("Make, run and watch pipelines on Spark.")

PROJECT = Annotated[
    Path,
    typer.Argument(metavar="PROJECT", help="The project's directory."),
]
HERE = Path()
# A busy machine needs minutes to start Spark or to finish a batch.
WAIT_SECONDS_MAX = 600.0


def load(path: Path) -> Any:
    """The project, with the extra that pipelines need."""
    try:
        from ottla.spark.pipeline.project import find_project

        return find_project(path)
    except ImportError as missing:
        raise Failure(f"{missing.name} is not installed: pip install 'ottla[spark]'") from missing
    except OttlaError as wrong:
        raise Failure(str(wrong)) from wrong


def control_of(project: Any) -> Any:
    from ottla.spark.pipeline.control import Control

    return Control(project.state)


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Also that of its directory.")],
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Make a project that runs as it is, on these brokers.

    \b
    Examples:
      ottla pipeline init orders
      ottla pipeline init orders --bootstrap-server 127.0.0.1:19092
    """
    from ottla.spark.pipeline.scaffold import make_project

    try:
        files = make_project(Path.cwd(), name, bootstrap)
    except OttlaError as wrong:
        raise Failure(str(wrong)) from wrong
    for path in files:
        note(f"made {path.relative_to(Path.cwd())}")
    sys.stdout.write(f"cd {name}; ottla topic create {name}-events; ottla pipeline run\n")


@app.command("dry-run")
def dry_run(project: PROJECT = HERE, *, output: Output = OutputFormat.text) -> None:
    """Check the definitions and show what they define; nothing is run.

    \b
    Examples:
      ottla pipeline dry-run
      ottla pipeline dry-run orders --output json
    """
    answer = inspect(load(project), [])
    if output is OutputFormat.json:
        print_json(answer)
    else:
        show_datasets(answer["datasets"])


@app.command()
def preview(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A flow, table or view.")],
    project: PROJECT = HERE,
    *,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many rows.")] = 20,
    output: Output = OutputFormat.text,
) -> None:
    """Show the first rows of a flow, table or view; nothing is written.

    \b
    Examples:
      ottla pipeline preview clean_events --rows 5
    """
    answer = inspect(load(project), ["--preview", name, "--rows", str(rows)])
    if output is OutputFormat.json:
        print_json(answer["rows"])
    else:
        show_rows(answer)


def inspect(project: Any, arguments: list[str]) -> Any:
    from ottla.spark.java import java_environment

    note("starting Spark ...")
    with tempfile.TemporaryDirectory(prefix="ottla-pipeline-") as directory:
        answer = Path(directory) / "answer.json"
        command = [sys.executable, "-m", "ottla.spark.pipeline.inspection", str(project.root)]
        done = run_child(
            [*command, str(answer), *arguments],
            cwd=project.root,
            environment={**os.environ, **java_environment()},
            is_quiet=True,
        )
        if not answer.exists():
            lines = done.stderr.strip().splitlines() or ["Spark did not start"]
            raise Failure(f"{lines[-1]} (`ottla pipeline doctor` may know why)")
        found = json.loads(answer.read_text())
    if "error" in found:
        raise Failure(found["error"])
    return found


@app.command()
def run(
    project: PROJECT = HERE,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Do what is there, and end; else run until stopped.")
    ] = False,
) -> None:
    """Run a pipeline in the foreground, and start it again when it fails.

    \b
    Examples:
      ottla pipeline run
      ottla pipeline run orders --once
    """
    from ottla.cli.pipeline_run import run_in_foreground

    code = run_in_foreground(load(project), once=once)
    if code:
        raise typer.Exit(code)


@app.command()
def status(project: PROJECT = HERE, *, output: Output = OutputFormat.text) -> None:
    """Show what a pipeline is doing: rows, lag, batch time, watermark, failures.

    \b
    Examples:
      ottla pipeline status
      ottla pipeline status orders --output json
    """
    found = load(project)
    state = control_of(found).status(found.name)
    if output is OutputFormat.json:
        print_json(status_document(state))
    else:
        print_status(state)


@app.command("list")
def list_pipelines(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to look.")] = HERE,
    *,
    output: Output = OutputFormat.text,
) -> None:
    """List the projects in a directory and its subdirectories, with their states.

    \b
    Examples:
      ottla pipeline list
    """
    from ottla.spark.pipeline.project import SPEC_NAMES

    if not directory.is_dir():
        raise Failure(f"{directory} is no directory")
    rows, broken = [], 0
    depths = ("", "*/", "*/*/")
    patterns = [f"{depth}{name}" for name in SPEC_NAMES for depth in depths]
    for spec in (spec for pattern in patterns for spec in sorted(directory.glob(pattern))):
        try:
            found = load(spec)
        except Failure as wrong:
            note(str(wrong))
            broken += 1
            continue
        state = control_of(found).status(found.name)
        rows.append({"pipeline": found.name, "state": state.state, "path": str(found.root)})
    if output is OutputFormat.json:
        print_json(rows)
    else:
        print_table(
            ["PIPELINE", "STATE", "PATH"],
            [(one["pipeline"], one["state"], one["path"]) for one in rows],
        )
    if broken:
        raise Failure(f"{broken} of {broken + len(rows)} projects cannot be read")


@app.command()
def pause(project: PROJECT = HERE) -> None:
    """Let batches under way finish, and stop until `resume`.

    \b
    Examples:
      ottla pipeline pause orders
    """
    want(load(project), "paused", "paused")


@app.command()
def resume(project: PROJECT = HERE) -> None:
    """Go on after `pause`.

    \b
    Examples:
      ottla pipeline resume orders
    """
    want(load(project), "running", "running")


@app.command()
def stop(project: PROJECT = HERE) -> None:
    """Let batches under way finish, and end the runner.

    \b
    Examples:
      ottla pipeline stop orders
    """
    found = load(project)
    control = control_of(found)
    if not control.is_held():
        note(f"{found.name} is not running")
        return
    control.want("stopped")
    until(lambda: not control.is_held(), f"{found.name} has not stopped")
    note(f"{found.name} is stopped")


def want(project: Any, state: str, goal: str) -> None:
    control = control_of(project)
    if not control.is_held():
        raise Failure(f"{project.name} is not running: `ottla pipeline run`")
    control.want(state)
    # Where it fails, the runner goes on trying, and somebody else may want something else by now.
    ends = (goal, "failing") if goal == "running" else (goal,)
    until(
        lambda: (
            control.status(project.name).state in ends
            or control.wanted() != state
            or not control.is_held()
        ),
        f"{project.name} is not {goal}",
    )
    found = control.status(project.name)
    if found.state == "failing":
        raise Failure(f"{project.name} is failing: {found.error}")
    note(f"{project.name} is {found.state}")


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what} within {WAIT_SECONDS_MAX:g} s; see `ottla pipeline status`")
        time.sleep(0.1)


@app.command()
def reset(
    project: PROJECT = HERE,
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="earliest, latest, a time, or offsets as JSON."),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="SINK", help="Only release this sink, so that another query may write to it."
        ),
    ] = None,
    keep_tables: Annotated[
        bool, typer.Option("--keep-tables", help="Leave the pipeline's tables as they are.")
    ] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            envvar="OTTLA_BOOTSTRAP",
            metavar="HOST:PORT[,...]",
            help="Brokers of the sinks (default: the project's).",
        ),
    ] = None,
    command_config: CommandConfig = None,
    yes: Yes = False,
) -> None:
    """Forget how far a pipeline has come: checkpoints, tables, groups, sinks. It must not run.
    A sink by its name needs no project: one of any query, on these brokers.

    \b
    Examples:
      ottla pipeline reset --to earliest
      ottla pipeline reset --to 2026-01-31T12:00 --keep-tables
      ottla pipeline reset --sink clean-orders --bootstrap-server 127.0.0.1:9092
    """
    from ottla.spark.pipeline.reset import reset as reset_project

    if sink is not None and to is not None:
        raise typer.BadParameter("--to and --sink are two things: one after the other")
    if sink is not None:
        release(project, sink, bootstrap, command_config)
        return
    if to is None:
        raise typer.BadParameter("--to or --sink is needed")
    found = load(project)
    try:
        confirm(
            f"Forget the progress{'' if keep_tables else ' and the tables'} of {found.name}?", yes
        )
        removed = reset_project(found, to, keep_tables=keep_tables, servers=bootstrap or "")
    except OttlaError as wrong:
        raise Failure(str(wrong)) from wrong
    for what, names in (
        ("checkpoint", removed.checkpoints),
        ("table", removed.tables),
        ("group", removed.groups),
        ("sink", removed.sinks),
    ):
        for name in names:
            note(f"removed {what} {name}" if what != "sink" else f"released sink {name}")
    for reason in removed.groups_left:
        note(f"not removed: group {reason}")
    note(f"the next run starts at {to}")


def release(project: Path, sink: str, bootstrap: str | None, command_config: Path | None) -> None:
    from ottla.spark.pipeline.reset import release_sinks

    client: dict[str, str] = {}
    try:
        found = load(project)
    except Failure as failure:
        if bootstrap is None:
            raise Failure(f"{failure}; or say where: --bootstrap-server HOST:PORT") from None
    else:
        client.update(found.settings.client)
        bootstrap = bootstrap or found.settings.bootstrap_servers
    if command_config is not None:
        client.update(read_properties(command_config))
    try:
        released = release_sinks(bootstrap or "", client, [sink])
    except OttlaError as wrong:
        raise Failure(str(wrong)) from wrong
    note(f"released {sink}" if released else f"{sink} had no owner")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(context: typer.Context, project: PROJECT = HERE) -> None:
    """Run the project's tests, each on a broker of its own; further arguments go to pytest.

    \b
    Examples:
      ottla pipeline test
      ottla pipeline test orders -k dead_letters
    """
    found = load(project)
    tests = found.root / "tests"
    if not tests.is_dir():
        raise Failure(f"{found.root} has no directory tests")
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.pipeline"]
    command += ["--rootdir", str(found.root), str(tests), *context.args]
    done = run_child(command, cwd=found.root, environment=os.environ, is_quiet=False)
    if done.returncode:
        raise Failure(f"the tests of {found.name} failed")


@app.command()
def doctor(*, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, output: Output = OutputFormat.text) -> None:
    """Check Java, Python, Spark and the brokers, and say what to do.

    \b
    Examples:
      ottla pipeline doctor
    """
    from ottla.spark.doctor import examine

    findings = list(examine(bootstrap))
    if output is OutputFormat.json:
        print_json(
            [
                {"what": one.what, "found": one.found, "good": one.is_good, "remedy": one.remedy}
                for one in findings
            ]
        )
    else:
        for one in findings:
            sys.stdout.write(f"{'ok ' if one.is_good else 'BAD'} {one.what}: {one.found}\n")
            if not one.is_good:
                sys.stdout.write(f"    {one.remedy}\n")
    bad = [one for one in findings if not one.is_good]
    if bad:
        raise Failure(f"{len(bad)} of {len(findings)} things are not as they must be")
