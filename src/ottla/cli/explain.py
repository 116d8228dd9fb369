"""`ottla explain`: what stands at an offset, who wrote it, what became of it, who has read it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ottla.cli.admin_door import open_admin
from ottla.cli.explain_words import lines_of
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Topic,
    command_app,
)
from ottla.cli.output import OutputFormat, print_json

app = command_app()


@app.command()
def explain(
    topic: Topic,
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION", help="Its number.")],
    offset: Annotated[int, typer.Argument(min=0, metavar="OFFSET", help="The offset.")],
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Explain one offset: what stands there, or why nothing does.

    Which producer wrote it, with which epoch and sequence, in which transaction and how that
    ended; leader epoch, time, batch and compressed size; which groups are past it. Where a reader
    misses it: aborted, compacted away, below the log start, above the high watermark or above the
    last stable offset, and which transaction it waits for.

    \b
    Examples:
      ottla explain bills 2 1041
      ottla explain bills 2 1041 --output json
    """
    from ottla.cli.explain_facts import Inquiry  # noqa: PLC0415 (help needs none of it)

    with open_admin(bootstrap, command_config) as admin:
        document = Inquiry(admin, topic, partition, offset).answer()
    if output is OutputFormat.json:
        print_json(document)
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines_of(document)))
