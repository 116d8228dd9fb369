"""Goal: parse, or MalformedRequest, never anything else; nothing is made from a size that is a lie.
Method: a process of its own with two gibibytes puts lies into every count and length of every
request (hostile_requests.py); here, valid messages are cut short and have bytes changed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.base.errors import MalformedRequest
from ottla.protocol import messages
from tests.unit.protocol.hostile_requests import Reader, readers_of
from tests.unit.protocol.kio_messages import (
    FULL,
    all_versions,
    positions_of,
    random_message,
    schema_of,
    written,
)

ROOT = Path(__file__).parents[3]


def test_no_count_and_no_length_is_believed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.protocol.hostile_requests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    versions, lies, floods = map(int, done.stdout.split())
    assert versions == len(all_versions())
    assert lies > 20 * versions
    assert floods > versions


def test_the_positions_cover_every_count_and_length_of_a_schema() -> None:
    schema = schema_of(3, 12, True)
    body = written(random_message(schema, random.Random(1), FULL))
    paths = {position.path for position in positions_of(schema, body)}
    assert paths == {
        "MetadataRequest.topics",
        "MetadataRequest.topics.name",
        "MetadataRequest.topics tags",
        "MetadataRequest tags",
    }


def damaged(body: bytes, rng: random.Random) -> bytes:
    """The body cut short, or with one to three bytes changed, put in or left out."""
    if rng.random() < 0.3:
        return body[: rng.randrange(len(body) + 1)]
    changed = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(changed) + 1)
        changed[place : place + rng.randint(0, 1)] = rng.randbytes(rng.randint(0, 1))
        if place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("is_request", [True, False], ids=["requests", "responses"])
def test_damaged_messages_are_read_or_refused(is_request: bool) -> None:
    rng = random.Random(77)
    refused = taken = 0
    for api_key, version in all_versions():
        schema = schema_of(api_key, version, is_request)
        body = written(random_message(schema, rng, FULL))
        readers = (
            readers_of(api_key)
            if is_request
            else [lambda version, body, key=api_key: messages.decode_response(key, version, body)]
        )
        for _ in range(30):
            hostile = damaged(body, rng)
            answers = {is_taken(read, version, hostile) for read in readers}
            assert len(answers) == 1, f"two readers of {schema.__name__} v{version}: {hostile!r}"
            taken += answers == {True}
            refused += answers == {False}
    assert refused > 1000  # else the damage did no harm
    assert taken > 1000  # else all of it is refused by one early check


def is_taken(read: Reader, version: int, body: bytes) -> bool:
    try:
        read(version, body)
    except MalformedRequest:
        return False
    return True
