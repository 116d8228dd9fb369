"""The tree of commands. A command's module is loaded when the command is called or described."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import ottla
from ottla.cli.output import until_nobody_reads
from ottla.cli.words import check_unicode

MODULES = {
    "serve": "ottla.cli.serve_command",
    "cluster": "ottla.cli.cluster",
    "topic": "ottla.cli.topic",
    "reassign": "ottla.cli.reassign",
    "produce": "ottla.cli.produce",
    "consume": "ottla.cli.consume",
    "group": "ottla.cli.group",
    "config": "ottla.cli.config",
    "txn": "ottla.cli.txn",
    "explain": "ottla.cli.explain",
    "log": "ottla.cli.log",
    "pipeline": "ottla.cli.pipeline",
    "demo": "ottla.cli.demo",
}
NAMES_ONLY = ("topic", "group", "config", "txn", "explain")


class CommandsOnDemand(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in MODULES:
            return None
        command = typer.main.get_command(import_module(MODULES[cmd_name]).app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        with until_nobody_reads():
            return super().invoke(ctx)


def print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"ottla {ottla.__version__}\n")
        raise typer.Exit


app = typer.Typer(
    cls=CommandsOnDemand,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def describe(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Ottla, a Kafka-compatible event log: run a broker, and look after its topics and groups.

    The brokers to talk to are 127.0.0.1:9092, or what OTTLA_BOOTSTRAP or --bootstrap-server says;
    any Apache Kafka will do. Every command explains itself with --help, and prints JSON for scripts
    with --output json.

    \b
    Examples:
      ottla serve
      ottla topic create orders --partitions 3
      echo hello | ottla produce orders
      ottla consume orders
      ottla group lag --watch
    """


def _check_names(arguments: list[str]) -> None:
    """Where all that can be said is names, there is nothing but UTF-8: a broker would be asked for
    what the protocol cannot say. Other commands take the bytes of records and files, too."""
    if arguments[:1] and arguments[0] in NAMES_ONLY:
        for argument in arguments:
            try:
                check_unicode(argument)
            except ValueError as refused:
                sys.stderr.write(f"ottla {arguments[0]}: {refused}\n")
                raise SystemExit(2) from refused


def run(arguments: list[str]) -> None:
    _check_names(arguments)
    typer.main.get_command(app).main(arguments, prog_name="ottla")
