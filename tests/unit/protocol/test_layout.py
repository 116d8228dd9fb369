"""Goal: kio's schemas become plain layouts under Kafka's names, and only those that are used."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.base.errors import InvariantError
from ottla.protocol import api_keys, struct_classes
from ottla.protocol.layout import (
    BYTES,
    STRUCT,
    UUID,
    FieldLayout,
    StructLayout,
    load_layout,
    size_min,
    supported_versions,
)
from ottla.protocol.primitives import NULL_UUID
from tests.unit.protocol.kio_messages import FULL, all_versions, random_message, schema_of, written

ROOT = Path(__file__).parents[3]


def layout_of(api_key: int, version: int, *, is_request: bool) -> StructLayout:
    layout = load_layout(api_key, version, is_request=is_request)
    assert layout is not None
    return layout


def field_of(layout: StructLayout, name: str) -> FieldLayout:
    (field,) = (field for field in layout.all_fields() if field.name == name)
    return field


def test_durations_and_dates_are_milliseconds_under_kafkas_names() -> None:
    request = layout_of(api_keys.JOIN_GROUP, 5, is_request=True)
    assert field_of(request, "session_timeout_ms").kind == "i"
    assert field_of(request, "rebalance_timeout_ms").default == -1
    response = layout_of(api_keys.PRODUCE, 9, is_request=False)
    topics = field_of(response, "responses").struct
    assert topics is not None
    partitions = field_of(topics, "partition_responses").struct
    assert partitions is not None
    append_time = field_of(partitions, "log_append_time_ms")
    assert (append_time.kind, append_time.is_nullable, append_time.default) == ("q", False, -1)


def test_null_is_only_where_the_wire_has_one() -> None:
    request = layout_of(api_keys.METADATA, 12, is_request=True)
    topics = field_of(request, "topics")
    assert (topics.is_array, topics.is_nullable, topics.kind) == (True, True, STRUCT)
    assert topics.struct is not None
    topic_id = field_of(topics.struct, "topic_id")
    assert (topic_id.kind, topic_id.is_nullable) == (UUID, False)
    assert topic_id.implicit_default() == NULL_UUID
    heartbeat = layout_of(63, 2, is_request=True)
    offline = field_of(heartbeat, "offline_log_dirs")
    assert (offline.is_array, offline.is_nullable, offline.tag) == (True, False, 0)


def test_records_are_bytes_and_an_assignment_may_be_null() -> None:
    produce = layout_of(api_keys.PRODUCE, 9, is_request=True)
    topics = field_of(produce, "topic_data").struct
    assert topics is not None
    partitions = field_of(topics, "partition_data").struct
    assert partitions is not None
    records = field_of(partitions, "records")
    assert (records.kind, records.is_nullable) == (BYTES, True)
    heartbeat = layout_of(api_keys.CONSUMER_GROUP_HEARTBEAT, 0, is_request=False)
    assignment = field_of(heartbeat, "assignment")
    assert (assignment.kind, assignment.is_nullable, assignment.default) == (STRUCT, True, None)


def test_the_least_size_is_never_more_than_a_real_one() -> None:
    rng = random.Random(3)
    for api_key, version in all_versions():
        for is_request in (True, False):
            least = size_min(layout_of(api_key, version, is_request=is_request))
            body = written(random_message(schema_of(api_key, version, is_request), rng, FULL))
            assert 0 <= least <= len(body)
    assert size_min(layout_of(api_keys.HEARTBEAT, 4, is_request=True)) == 1 + 4 + 1 + 1 + 1
    assert size_min(layout_of(api_keys.HEARTBEAT, 0, is_request=True)) == 2 + 4 + 2


def test_no_layout_for_what_does_not_exist() -> None:
    assert load_layout(api_keys.METADATA, 99, is_request=True) is None
    assert load_layout(4, 0, is_request=True) is None
    assert supported_versions(4) is None


def test_a_class_refuses_fields_that_the_table_does_not_know() -> None:
    struct_classes.struct_class(-1, True, "Odd", ["a", "b"])
    with pytest.raises(InvariantError, match="Odd"):
        struct_classes.struct_class(-1, True, "Odd", ["a", "c"])


PROGRAM = """
import sys
from ottla.protocol import messages
before = {name for name in sys.modules if name.startswith("kio.schema")}
messages.decode_request(12, 4, bytes.fromhex("02 67 00 00 00 01 02 6d 00 00"))
loaded = {name.split(".")[2] for name in sys.modules if name.startswith("kio.schema.")}
print(len(before), "hypothesis" in sys.modules, *sorted(loaded))
import hypothesis  # it can still be found
"""


def test_only_what_is_used_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    before, hypothesis, *loaded = done.stdout.split()
    assert (before, hypothesis) == ("0", "False")
    assert set(loaded) == {
        "errors",
        "heartbeat",
        "index",
        "request_header",
        "response_header",
        "types",
    }
