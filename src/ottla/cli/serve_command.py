"""`ottla serve` for the full command line: its help, and what to say about a mistake."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli import serve as serving
from ottla.cli.options import command_app, parse_pairs

app = command_app()


@app.command()
def serve(
    path: Annotated[
        str | None,
        typer.Argument(metavar="server.properties", help="A file of settings, Kafka's names."),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting in place of the file's; repeatable."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where the data is kept (log.dirs).  [default: ottla-data]"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to listen (listeners).  [default: 127.0.0.1:9092]",
        ),
    ] = None,
) -> None:
    """Run one broker in the foreground, with nothing beside it.

    Prints one line when it accepts connections. SIGTERM or Ctrl-C stops it cleanly.

    \b
    Examples:
      ottla serve
      ottla serve --data /var/lib/ottla --listen 127.0.0.1:9092
      ottla serve server.properties --override log.retention.hours=24
    """
    overrides = override or []
    parse_pairs(overrides, "--override")
    raise typer.Exit(serving.run(serving.ServeOptions(path, overrides, data, listen)))
