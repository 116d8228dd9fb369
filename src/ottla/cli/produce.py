"""`ottla produce`: lines of stdin or of files become records of a topic."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ottla.cli.failure import INTERRUPTED, Failure
from ottla.cli.model import RecordToSend, SenderSettings
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Topic,
    command_app,
    connect,
)
from ottla.cli.output import OutputFormat, note, plural, print_json
from ottla.cli.pace import Pace
from ottla.cli.progress import Meter, meter
from ottla.cli.record_lines import LineReader, LineRules, line_reader, parse_header, unescape

if TYPE_CHECKING:
    from ottla.cli.record_sender import RecordSender

app = command_app()


class Compression(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    nobody = "0"
    leader = "1"
    all = "all"


@app.command()
def produce(
    topic: Topic,
    *,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read this, not stdin; repeatable."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help=r"What stands between key and value (\t for a tab). A line without it has no key.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For every record; repeatable."),
    ] = None,
    compression: Annotated[
        Compression,
        typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="Codec."),
    ] = Compression.none,
    acks: Annotated[
        Acks,
        typer.Option(
            metavar="0|1|all", help="Who must have a record before it counts as delivered."
        ),
    ] = Acks.all,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="N", help="Records a second, at most and steadily."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="P", help="[default: by the key]"),
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A key or value of this text is null.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Lines are JSON objects, as `ottla consume -o json`.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="For the delivery of a record.")
    ] = 30.0,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Write records to a topic, one a line.

    With --json a line is an object of "key", "value", "headers", "partition", "timestamp", each
    optional; "key_base64" and "value_base64" hold what is no text. Records with a key go where the
    Java client would put them.

    \b
    Examples:
      echo hello | ottla produce orders
      ottla produce orders --file orders.csv --key-separator , --compression zstd
      ottla produce orders --json < orders.jsonl
      ottla produce orders --header source=test --rate 100 < lines.txt
      printf 'k1:\\n' | ottla produce state --key-separator : --null-marker ''
    """
    rules = _rules(key_separator, null_marker, header or [], partition, as_json)
    sender = connect(bootstrap, command_config).sender(
        topic, SenderSettings(compression.value, acks.value, int(timeout * 1_000))
    )
    work = Producing(sender, line_reader(rules), rate)
    stopped_by: Failure | typer.Exit | None = None
    try:
        work.send_all(file or [])
    except Failure as failure:
        stopped_by = failure
    except KeyboardInterrupt:
        stopped_by = typer.Exit(INTERRUPTED)
    # What was sent before is sent: people are told how much that is, whatever stopped the rest.
    work.finish()
    report(sender, output)
    if stopped_by is not None:
        raise stopped_by


def _rules(
    key_separator: str | None,
    null_marker: str | None,
    headers: list[str],
    partition: int | None,
    as_json: bool,
) -> LineRules:
    if as_json and (key_separator is not None or null_marker is not None):
        raise typer.BadParameter("says what is key, value and null already", param_hint="--json")
    if key_separator == "":
        raise typer.BadParameter("may not be empty", param_hint="--key-separator")
    try:
        return LineRules(
            key_separator=None if key_separator is None else unescape(key_separator),
            null_marker=None if null_marker is None else unescape(null_marker),
            headers=[parse_header(text) for text in headers],
            partition=partition,
            as_json=as_json,
        )
    except ValueError as cause:
        raise typer.BadParameter(str(cause)) from cause


@dataclass(slots=True)
class Source:
    name: str
    stream: BinaryIO
    size_bytes: int | None


class Producing:
    """One run over all sources. A line that cannot be read stops it; what was sent stays sent."""

    def __init__(self, sender: RecordSender, read: LineReader, rate: float | None) -> None:
        self._sender = sender
        self._read = read
        self._pace = None if rate is None else Pace(rate, time.monotonic())
        self._size_bytes = 0

    def send_all(self, files: list[Path]) -> None:
        with ExitStack() as opened:
            sources = [_open(path, opened) for path in files] or [_standard_input()]
            sizes = [source.size_bytes for source in sources]
            total = None if None in sizes else sum(size for size in sizes if size is not None)
            with meter(f"producing to {self._sender.topic}", total) as progress:
                for source in sources:
                    self._send_lines(source, progress)

    def _send_lines(self, source: Source, progress: Meter) -> None:
        for number, line in enumerate(source.stream, 1):
            self._size_bytes += len(line)
            if self._pace is not None:
                self._wait(self._pace.wait_before_next(time.monotonic()))
            self._sender.send(self._record(source, number, line))
            progress.show(self._sender.sent, self._size_bytes)

    def _record(self, source: Source, number: int, line: bytes) -> RecordToSend:
        try:
            return self._read(line)
        except ValueError as cause:
            raise Failure(f"{source.name}, line {number}: {cause}") from cause

    def _wait(self, seconds: float) -> None:
        # The client reports deliveries in the meantime, and a report may end its wait early.
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._sender.wait(left_s)

    def finish(self) -> None:
        """Every record is delivered or has failed when this returns: each has its time-out."""
        while self._sender.flush_step():
            pass


def _open(path: Path, opened: ExitStack) -> Source:
    try:
        stream = opened.enter_context(path.open("rb"))
        size_bytes = path.stat().st_size if path.is_file() else None
    except OSError as cause:
        raise Failure(f"{path} cannot be read: {cause.strerror}") from cause
    return Source(str(path), stream, size_bytes)


def _standard_input() -> Source:
    if sys.stdin.isatty():
        note("reading records from the terminal, one a line; Ctrl-D ends")
    return Source("stdin", sys.stdin.buffer, None)


def report(sender: RecordSender, output: OutputFormat) -> None:
    delivered = sender.delivered_by_partition
    if output is OutputFormat.json:
        print_json(_as_json(sender))
    else:
        spread = ", ".join(f"{delivered[number]} in {number}" for number in sorted(delivered))
        note(
            f"produced {plural(sender.delivered(), 'record')} to {sender.topic}"
            + (f" (partitions: {spread})" if len(delivered) > 1 else "")
        )
    if sender.failed:
        raise Failure(
            f"{sender.failed} of {plural(sender.sent, 'record')} not delivered;"
            f" the first because: {sender.first_failure}"
        )


def _as_json(sender: RecordSender) -> dict[str, Any]:
    delivered = sender.delivered_by_partition
    return {
        "topic": sender.topic,
        "delivered": sender.delivered(),
        "failed": sender.failed,
        "first_failure": sender.first_failure,
        "partitions": [
            {"partition": number, "delivered": delivered[number]} for number in sorted(delivered)
        ],
    }
