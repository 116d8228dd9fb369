"""What is known about one offset, in lines for people."""

from __future__ import annotations

from typing import Any

from ottla.cli.output import Size, plural
from ottla.cli.words import shown, time_of

Document = dict[str, Any]

NAMES_MAX = 12
KEY_CHARACTERS_MAX = 60


def lines_of(document: Document) -> list[str]:
    place = f"{document['topic']}-{document['partition']} offset {document['offset']}"
    lines = [f"{place}: {_verdict(document)}"]
    for name, text in _facts(document):
        lines.append(f"  {name:<12} {text}")
    return lines


def _verdict(document: Document) -> str:
    log, offset = document["log"], document["offset"]
    match document["status"]:
        case "below_log_start":
            return (
                f"missing, below the log start {log['log_start_offset']}:"
                " deleted by retention or on request"
            )
        case "beyond_end":
            return f"not there yet: the high watermark is {log['high_watermark']}"
        case "compacted":
            return "missing, compacted away: its key has a newer record, or it was aborted"
        case "marker":
            return f"a marker that a transaction was {document['transaction']['outcome']}"
        case _:
            return _verdict_on_record(document, offset >= log["last_stable_offset"])


def _verdict_on_record(document: Document, is_unstable: bool) -> str:
    transaction = document["transaction"]
    outcome = None if transaction is None else transaction["outcome"]
    if outcome == "aborted":
        return "a record, aborted: missing for read_committed readers"
    if outcome == "open":
        return "a record of an open transaction: read_committed readers wait for its end"
    # Committed; or ended, if its marker is too far away to say how.
    what = "a record" if outcome is None else f"a record, {outcome}"
    if is_unstable:
        return (
            f"{what}, above the last stable offset:"
            " read_committed readers wait for an earlier transaction"
        )
    return what


def _facts(document: Document) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    batch, record = document["batch"], document["record"]
    if record is not None:
        facts.append(("record", _record_text(record)))
        who = "broker, on append" if batch["timestamp_type"] == "LogAppendTime" else "producer"
        facts.append(("time", f"{time_of(record['timestamp_ms'])}, from the {who}"))
    if batch is not None:
        facts.append(("batch", _batch_text(batch)))
        facts.append(("leader epoch", str(batch["leader_epoch"])))
    if document["producer"] is not None:
        facts.append(("producer", _producer_text(document["producer"])))
    if document["transaction"] is not None:
        facts.append(("transaction", _transaction_text(document)))
    if document["held_back_by"]:
        facts.append(("waits for", ", ".join(map(_open_text, document["held_back_by"]))))
    log = document["log"]
    facts.append(
        (
            "log",
            f"starts at {log['log_start_offset']}, stable to {log['last_stable_offset']},"
            f" high watermark {log['high_watermark']}; broker {log['leader']} leads"
            f" in epoch {log['leader_epoch']}",
        )
    )
    facts += _group_facts(document["groups"])
    return facts


def _record_text(record: Document) -> str:
    key = "no key"
    if record["key"] is not None:
        text = shown(record["key"].encode())
        cut = text if len(text) <= KEY_CHARACTERS_MAX else f"{text[:KEY_CHARACTERS_MAX]}..."
        key = f"key {cut} ({Size(record['key_bytes'])})"
    size = record["value_bytes"]
    value = "null (a tombstone where the topic is compacted)" if size is None else str(Size(size))
    headers = f", {plural(record['headers'], 'header')}" if record["headers"] else ""
    return f"{key}, value {value}{headers}"


def _batch_text(batch: Document) -> str:
    packed = ""
    if batch["codec"] != "none":
        packed = f" with {batch['codec']}, {Size(batch['uncompressed_bytes'])} without"
    return (
        f"offsets {batch['base_offset']} to {batch['last_offset']},"
        f" {plural(batch['record_count'], 'record')}, {Size(batch['size_bytes'])}{packed}"
    )


def _producer_text(producer: Document) -> str:
    sequence = producer["sequence"]
    told = "" if sequence is None else f", sequence {sequence}"
    return f"{producer['producer_id']}, epoch {producer['producer_epoch']}{told}"


def _transaction_text(document: Document) -> str:
    transaction = document["transaction"]
    name = transaction["transactional_id"] or "of an id that no coordinator knows any more"
    outcome, marker = transaction["outcome"], transaction["marker_offset"]
    if document["status"] == "marker":
        return f"{name}, {outcome}; coordinator epoch {transaction['coordinator_epoch']}"
    if outcome == "open":
        return f"{name}, open"
    where = "its marker is gone, or far away" if marker is None else f"marker at offset {marker}"
    return f"{name}, {outcome}: {where}"


def _open_text(one: Document) -> str:
    name = one["transactional_id"] or f"producer {one['producer_id']}"
    return f"{name}, open from offset {one['start_offset']} on"


def _group_facts(groups: list[Document]) -> list[tuple[str, str]]:
    past = [one["group"] for one in groups if one["is_past"]]
    before = [
        f"{one['group']} (at {one['committed_offset']})" for one in groups if not one["is_past"]
    ]
    facts = [("groups past", _some(past) or "none")]
    if before:
        facts.append(("not yet past", _some(before)))
    return facts


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
