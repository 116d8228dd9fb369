"""Every request of every version with a lie in every count and every length, in two gibibytes.

Run as a program, because an address limit is for life. Prints how many bodies were refused; any
answer but MalformedRequest, a MemoryError or a large allocation ends it with a traceback.
"""

from __future__ import annotations

import random
import re
import resource
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ottla.base.errors import MalformedRequest
from ottla.protocol import api_keys, messages
from ottla.protocol.fetch import read_fetch_request
from ottla.protocol.produce import read_produce_request
from tests.unit.protocol.kio_messages import (
    FULL,
    all_versions,
    hostile_bodies,
    positions_of,
    random_message,
    schema_of,
    written,
)

ADDRESS_BYTES_MAX = 2 << 30
ALLOCATED_BYTES_MAX = 4 << 20
BODY_BYTES_MAX = 20_000  # below what a two-byte length can say, so that no lie is true by chance
PADDING = bytes(8 << 20)
Reader = Callable[[int, bytes], Any]


def readers_of(api_key: int) -> list[Reader]:
    """Everything in the room that reads such a request."""
    readers: list[Reader] = [lambda version, body: messages.decode_request(api_key, version, body)]
    if api_key == api_keys.PRODUCE:
        readers.append(lambda version, body: read_produce_request(version, memoryview(body)))
    if api_key == api_keys.FETCH:
        readers.append(lambda version, body: read_fetch_request(version, memoryview(body)))
    return readers


def full_body(schema: Any, rng: random.Random) -> bytes:
    """A request with something in all of its arrays and strings, below BODY_BYTES_MAX."""
    while True:
        body = written(random_message(schema, rng, FULL))
        if len(body) < BODY_BYTES_MAX:
            return body


def refuse(read: Reader, version: int, body: bytes, what: str, told: set[str]) -> None:
    """The refusal must come from the check of this very number, not from some later stumble."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        taken = read(version, body)
    except MalformedRequest as refusal:
        _, peak = tracemalloc.get_traced_memory()
        assert told & set(re.findall(r"-?\d+", str(refusal))), f"{what}: {refusal}"
        assert peak - before < ALLOCATED_BYTES_MAX, f"{what}: {peak - before} bytes for nothing"
        return
    raise AssertionError(f"{what} was taken: {taken}")


def lie(api_key: int, version: int, rng: random.Random) -> int:
    schema = schema_of(api_key, version, True)
    body = full_body(schema, rng)
    refused = 0
    for read in readers_of(api_key):
        read(version, body)
        for where, hostile, told in hostile_bodies(schema, body):
            refuse(read, version, hostile, f"{schema.__name__} v{version} {where}", told)
            refused += 1
    return refused


def flood(api_key: int, version: int, rng: random.Random) -> int:
    """Counts that the bytes do hold: millions of empty things must not become objects."""
    schema = schema_of(api_key, version, True)
    body = full_body(schema, rng)
    refused = 0
    for read in readers_of(api_key):
        for position in positions_of(schema, body):
            hostile = position.replaced(body, 2_000_000)
            for millions in (hostile[: position.offset + 4] + PADDING, hostile + PADDING):
                refuse_flood(read, version, millions)
                refused += 1
    return refused


def refuse_flood(read: Reader, version: int, body: bytes) -> None:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with suppress(MalformedRequest):
        read(version, body)
    _, peak = tracemalloc.get_traced_memory()
    # Bytes, two million of them, may truly be there; objects may not.
    assert peak - before < ALLOCATED_BYTES_MAX


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    versions = all_versions()
    rng = random.Random(31)
    for api_key, version in versions:  # what is imported and compiled is not what is measured
        body = full_body(schema_of(api_key, version, True), rng)
        messages.decode_request(api_key, version, body)
    tracemalloc.start()
    refused = sum(lie(api_key, version, rng) for api_key, version in versions)
    flooded = sum(flood(api_key, version, rng) for api_key, version in versions[::5])
    print(len(versions), refused, flooded)


if __name__ == "__main__":
    main()
