"""`ottla log`: what is in the files of a log, and whether it is sound."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.failure import Failure
from ottla.cli.log_dump import (
    AbortedTransaction,
    Batch,
    Found,
    OffsetEntry,
    Problem,
    Producer,
    Record,
    TimeEntry,
    dump,
    files_of,
)
from ottla.cli.options import Output, command_group
from ottla.cli.output import OutputFormat, plural, until_nobody_reads
from ottla.cli.record_json import json_bytes
from ottla.cli.words import shown, time_of

app = command_group("Look into the files of a log.")

TYPES: dict[type, str] = {
    Batch: "batch",
    Record: "record",
    OffsetEntry: "offset_index_entry",
    TimeEntry: "time_index_entry",
    AbortedTransaction: "aborted_transaction",
    Producer: "producer",
    Problem: "problem",
}
NOUNS: dict[type, str] = {
    Batch: "batch",
    Record: "record",
    OffsetEntry: "entry",
    TimeEntry: "entry",
    AbortedTransaction: "aborted transaction",
    Producer: "producer",
}
PLURALS = {"batch": "batches", "entry": "entries"}
BATCH_LINE = "{:>12} {:>12} {:>8} {:>6} {:>11} {:>9}  {:6}  {:24}  {:5}  {}"
BATCH_HEADINGS = BATCH_LINE.format(
    *("FIRST", "LAST", "RECORDS", "EPOCH", "POSITION", "BYTES", "CODEC", "LATEST", "CRC"),
    "PRODUCER",
)
CONTROL_TYPES = {b"\x00\x00\x00\x00": "abort", b"\x00\x00\x00\x01": "commit"}


@app.callback()
def describe() -> None:
    """Look into the files of a log."""


@app.command("dump")
def dump_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="One or more .log, .index, .timeindex, .txnindex, .snapshot, or directories.",
        ),
    ],
    *,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of each batch, too.")
    ] = False,
    output: Output = OutputFormat.text,
) -> None:
    """Show what is in files of a log, and whether it is sound.

    Reads files of Ottla and of Apache Kafka, needs no broker and changes nothing. Every CRC is
    checked, every index against the log beside it; anything wrong is told, with exit code 1. A log
    that is being written to may end in half a batch.

    \b
    Examples:
      ottla log dump data/orders-0/00000000000000000000.log
      ottla log dump --records data/orders-0/00000000000000000000.log
      ottla log dump data/orders-0 --output json
    """
    problems = 0
    paths = [path for given in files for path in files_of(given)]
    with until_nobody_reads():
        for number, path in enumerate(paths):
            if output is OutputFormat.json:
                problems += _dump_as_json(path, records)
            else:
                sys.stdout.write("\n" if number else "")
                problems += _dump_as_text(path, records)
    if problems:
        raise Failure(f"{plural(problems, 'problem')} found in {plural(len(paths), 'file')}")


def _dump_as_json(path: Path, with_records: bool) -> int:
    problems = 0
    for found in dump(path, with_records=with_records):
        problems += isinstance(found, Problem)
        line = {"file": str(path), "type": TYPES[type(found)], **_as_json(found)}
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return problems


def _as_json(found: Found) -> dict[str, Any]:
    if isinstance(found, Record):
        return {
            "offset": found.offset,
            "timestamp": found.timestamp,
            **json_bytes("key", found.key),
            **json_bytes("value", found.value),
            "headers": [{"key": name, **json_bytes("value", one)} for name, one in found.headers],
        }
    return asdict(found)


def _dump_as_text(path: Path, with_records: bool) -> int:
    contents = dump(path, with_records=with_records)
    sys.stdout.write(f"{path}\n")
    counts: Counter[type] = Counter()
    in_control_batch = False
    for found in contents:
        if isinstance(found, Batch):
            if not counts[Batch]:
                sys.stdout.write(BATCH_HEADINGS + "\n")
            in_control_batch = found.control
        counts[type(found)] += 1
        counts[int] += found.record_count if isinstance(found, Batch) else 0
        sys.stdout.write(_line(found, in_control_batch) + "\n")
    sys.stdout.write(_verdict(counts) + "\n")
    return counts[Problem]


def _verdict(counts: Counter[type]) -> str:
    parts = [_count(number, NOUNS[kind]) for kind, number in counts.items() if kind in NOUNS]
    if counts[Batch] and not counts[Record]:
        parts.append(_count(counts[int], "record"))
    good = "no problem" if not counts[Problem] else plural(counts[Problem], "problem").upper()
    return f"{', '.join(parts) or 'empty'}: {good}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else PLURALS.get(noun, noun + 's')}"


def _line(found: Found, in_control_batch: bool) -> str:
    match found:
        case Batch():
            return _batch_line(found)
        case Record():
            return _record_line(found, in_control_batch)
        case OffsetEntry(offset=offset, position=position):
            return f"offset {offset:>12}  position {position:>11}"
        case TimeEntry(timestamp=timestamp, offset=offset):
            return f"timestamp {timestamp:>14} {time_of(timestamp):24}  offset {offset:>12}"
        case AbortedTransaction():
            return (
                f"producer {found.producer_id}  first {found.first_offset}"
                f"  last {found.last_offset}  last stable {found.last_stable_offset}"
            )
        case Producer():
            return _producer_line(found)
        case Problem(position=position, reason=reason):
            return f"PROBLEM{'' if position is None else f' at {position}'}: {reason}"


def _batch_line(batch: Batch) -> str:
    producer = "-"
    if batch.producer_id >= 0:
        producer = f"{batch.producer_id}/{batch.producer_epoch} from {batch.base_sequence}"
    marks = ["transactional"] * batch.transactional + ["control"] * batch.control
    return BATCH_LINE.format(
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.leader_epoch,
        batch.position,
        batch.size_bytes,
        batch.codec,
        time_of(batch.max_timestamp),
        "good" if batch.crc_ok else "WRONG",
        " ".join([producer, *marks]),
    )


def _record_line(record: Record, in_control_batch: bool) -> str:
    if in_control_batch and record.key in CONTROL_TYPES:
        return f"  @{record.offset} {time_of(record.timestamp)} {CONTROL_TYPES[record.key]} marker"
    headers = "".join(f" {name}={shown(value)}" for name, value in record.headers)
    return (
        f"  @{record.offset} {time_of(record.timestamp)} key={shown(record.key)}"
        f" value={shown(record.value)}" + (f" headers:{headers}" if headers else "")
    )


def _producer_line(producer: Producer) -> str:
    line = (
        f"producer {producer.producer_id}/{producer.producer_epoch}"
        f"  last sequence {producer.last_sequence}  last offset {producer.last_offset}"
        f"  {time_of(producer.timestamp)}"
    )
    if producer.transaction_first_offset >= 0:
        line += f"  open transaction from {producer.transaction_first_offset}"
    return line
