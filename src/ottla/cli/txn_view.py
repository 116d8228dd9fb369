"""What `ottla txn` shows: gathered as plain JSON values, and laid out for people."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.failure import Failure
from ottla.cli.output import plural
from ottla.cli.tables import print_table
from ottla.cli.words import duration_of, time_of
from ottla.client.errors import BrokerError
from ottla.protocol import error_codes as codes

if TYPE_CHECKING:
    from ottla.cli.txn_hanging import Hanging
    from ottla.client.admin import Admin
    from ottla.client.admin_values import TransactionDescription

# KIP-939: the time-out of a transaction that waits for an outside coordinator.
NO_TIMEOUT_MS = 2**31 - 1
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
STATES = ("Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")


def describe(admin: Admin, names: Sequence[str], now_ms: int) -> list[dict[str, Any]]:
    return [document_of(existing(admin, name), now_ms) for name in dict.fromkeys(names)]


def existing(admin: Admin, name: str) -> TransactionDescription:
    try:
        return admin.describe_transactions([name])[0]
    except BrokerError as cause:
        if cause.code != codes.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        known = [one.transactional_id for one in admin.list_transactions()]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Failure(f"no coordinator knows the transactional id {name}{hint}") from cause


def document_of(one: TransactionDescription, now_ms: int) -> dict[str, Any]:
    # A coordinator may still tell when the last one began.
    start_ms = one.start_time_ms if one.state in OPEN_STATES else None
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator": one.coordinator,
        "timeout_ms": one.timeout_ms,
        "start_time_ms": start_ms,
        # The broker's clock may be ahead of ours.
        "open_ms": None if start_ms is None else max(0, now_ms - start_ms),
        "partitions": [
            {"topic": topic, "partition": partition} for topic, partition in one.partitions
        ],
    }


def show(transactions: Sequence[Mapping[str, Any]]) -> None:
    for number, one in enumerate(transactions):
        if number:
            sys.stdout.write("\n")
        sys.stdout.write("".join(f"{line}\n" for line in _lines(one)))


def _lines(one: Mapping[str, Any]) -> list[str]:
    unlimited = one["timeout_ms"] == NO_TIMEOUT_MS
    timeout = "none, it waits to be decided" if unlimited else duration_of(one["timeout_ms"])
    lines = [
        f"{one['transactional_id']}: {one['state']}",
        f"  producer     {one['producer_id']}, epoch {one['producer_epoch']}",
        f"  coordinator  {one['coordinator']}",
        f"  time-out     {timeout}",
    ]
    if one["start_time_ms"] is not None:
        since = f"{time_of(one['start_time_ms'])}, for {duration_of(one['open_ms'])}"
        lines.append(f"  open since   {since}")
    if one["partitions"]:
        places = ", ".join(f"{each['topic']}-{each['partition']}" for each in one["partitions"])
        lines.append(f"  {plural(len(one['partitions']), 'partition'):<13}{places}")
    return lines


def hanging_document(one: Hanging, now_ms: int) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "start_offset": one.start_offset,
        "last_timestamp_ms": one.last_timestamp_ms,
        "silent_ms": max(0, now_ms - one.last_timestamp_ms),
        "transactional_id": one.transactional_id,
        "why": one.why,
    }


def show_hanging(found: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "START", "PRODUCER", "EPOCH", "SILENT", "WHY"],
        [
            (
                one["topic"],
                one["partition"],
                one["start_offset"],
                one["producer_id"],
                one["producer_epoch"],
                duration_of(one["silent_ms"]),
                one["why"],
            )
            for one in found
        ],
    )
