"""kcat, as a person at a terminal uses it. Debian's brings librdkafka 2.0: older versions."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.compat import confluent
from tests.patience import SECONDS_MAX

LINES = "".join(f"line {number}\n" for number in range(1, 1001))


def kcat(bootstrap: str, *arguments: str, given: str = "") -> str:
    command = ["kcat", "-b", bootstrap, "-X", "log_level=0", "-X", "fetch.wait.max.ms=50"]
    done = subprocess.run(
        [*command, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def consume(bootstrap: str, topic: str, *arguments: str) -> str:
    return kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", *arguments)


@pytest.fixture
def topic(bootstrap: str) -> str:
    return confluent.create_topic(bootstrap)


def test_listing(bootstrap: str, topic: str) -> None:
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    assert len(listed["brokers"]) == 1
    assert listed["controllerid"] == listed["brokers"][0]["id"]
    assert topic in {described["topic"] for described in listed["topics"]}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codec_round_trip(bootstrap: str, topic: str, codec: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec, given=LINES)
    assert consume(bootstrap, topic, "-o", "beginning") == LINES


def test_idempotent_producer(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", given=LINES)
    assert consume(bootstrap, topic, "-o", "beginning") == LINES


def test_keys_headers_and_null_values(bootstrap: str, topic: str) -> None:
    produce = ("-P", "-t", topic, "-p", "0", "-K:", "-Z", "-H", "a=1", "-H", "b=two")
    kcat(bootstrap, *produce, given="k:v\ngone:\n:keyless\n")
    shown = consume(bootstrap, topic, "-o", "beginning", "-J").splitlines()
    records = [json.loads(line) for line in shown]
    assert [(record["key"], record["payload"]) for record in records] == [
        ("k", "v"),
        ("gone", None),
        (None, "keyless"),
    ]
    assert records[0]["headers"] == ["a", "1", "b", "two"]


def test_offsets_from_the_end_by_query_and_by_time(bootstrap: str, topic: str) -> None:
    stamps = ({"value": b"v%d" % stamp, "timestamp": stamp} for stamp in range(1000, 2000))
    confluent.send(confluent.producer(bootstrap), topic, stamps)
    assert consume(bootstrap, topic, "-o", "-2") == "v1998\nv1999\n"
    assert consume(bootstrap, topic, "-o", "s@1997") == "v1997\nv1998\nv1999\n"
    assert "offset 1000" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1")
    assert "offset 0" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:-2")
    assert "offset 500" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:1500")


def test_a_topic_is_made_by_asking_for_it(bootstrap: str) -> None:
    topic = confluent.new_name()
    kcat(bootstrap, "-P", "-t", topic, "-X", "topic.metadata.propagation.max.ms=20000", given="a\n")
    assert consume(bootstrap, topic, "-o", "beginning") == "a\n"
