"""Options that the commands share, and the way from options to a connection.

The client takes a moment to load, so it is loaded only when a command connects: help,
completion and `ottla serve` do without.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.failure import Failure
from ottla.cli.output import OutputFormat

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
COMPLETION_TIMEOUT_S = 1.0


def command_app() -> typer.Typer:
    """Help in plain text: it reads well at any width, and needs no further library."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)


def command_group(text: str) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=text)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Names of topics for the shell; silent when no broker answers."""
    bootstrap = context.params.get("bootstrap") or os.environ.get("OTTLA_BOOTSTRAP")
    try:
        connection = connect(bootstrap or BOOTSTRAP_DEFAULT, None, COMPLETION_TIMEOUT_S)
        names = [topic.name for topic in connection.topics()]
    except (Failure, typer.BadParameter):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Names of consumer groups, in the same way."""
    bootstrap = context.params.get("bootstrap") or os.environ.get("OTTLA_BOOTSTRAP")
    try:
        connection = connect(bootstrap or BOOTSTRAP_DEFAULT, None, COMPLETION_TIMEOUT_S)
        names = [one.group for one in connection.group_admin().groups()]
    except (Failure, typer.BadParameter):
        return []
    return [name for name in names if name.startswith(incomplete)]


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="Brokers to connect to first.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client settings, one key=value a line (TLS, SASL); Kafka's names.",
    ),
]
Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", metavar="text|json", help="For people, or for scripts."),
]
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=complete_topic)
]
Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="One or more topics.", autocompletion=complete_topic),
]
Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete_group)
]
Groups = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", help="One or more groups.", autocompletion=complete_group),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even on a terminal.")]


def confirm(question: str, yes: bool) -> None:
    """Asks on a terminal only: a script that says delete means it."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def connect(bootstrap: str, command_config: Path | None, timeout_s: float = 5.0) -> Connection:
    from ottla.cli.connection import Connection  # noqa: PLC0415 (see the module's docstring)

    settings = {} if command_config is None else read_properties(command_config)
    try:
        return Connection(bootstrap, settings, timeout_s)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--bootstrap-server") from cause


def read_properties(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise Failure(f"{path} cannot be read: {cause}") from cause
    return parse_pairs(
        (line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")),
        "--command-config",
    )


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` each."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r} should look like key=value", param_hint=option)
        pairs[key.strip()] = value.strip()
    return pairs
