"""The `ottla` command against a real broker.

Most tests call it inside this process, which is the same code from the first argument to the exit
code and saves a quarter of a second each; signals and pipes need a process of its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.compat.command import OTTLA, Ottla
from tests.compat.confluent import new_name
from tests.compat.conftest import MakeNode
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX

# Records with timestamps of long ago are not to be swept away in the middle of a test.
FOR_EVER = ["--config", "retention.ms=-1"]


@pytest.fixture
def ottla(bootstrap: str) -> Ottla:
    return Ottla(bootstrap)


def test_a_topic_from_its_creation_to_its_end(ottla: Ottla) -> None:
    topic = ottla.new_topic(2, "--config", "retention.ms=86400000")
    (listed,) = [row for row in ottla.topics() if row["topic"] == topic]
    assert listed == {"topic": topic, "partitions": 2, "replication_factor": 1, "internal": False}
    assert topic in ottla("topic", "list").out.decode()

    done = ottla("topic", "alter", topic, "--partitions", "3", "--config", "segment.bytes=1048576")
    assert (done.code, done.out.decode()) == (0, f"altered {topic}\n"), done.err
    done = ottla("topic", "alter", topic, "--delete-config", "retention.ms")
    assert done.code == 0, done.err
    (described,) = ottla("topic", "describe", topic, "-o", "json").document()
    assert described["configs"] == {"segment.bytes": "1048576"}
    assert len(described["partitions"]) == 3

    done = ottla("topic", "delete", topic)
    assert (done.code, done.out.decode()) == (0, f"deleted {topic}\n"), done.err
    done = ottla("topic", "describe", topic)
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith(f"ottla: topic {topic} does not exist")


def test_creating_twice(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    again = ottla("topic", "create", topic)
    assert again.code == 1
    assert again.err.count("\n") == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    fine = ottla("topic", "create", topic, "--if-not-exists", "-o", "json")
    assert fine.document() == [{"topic": topic, "created": False}]


def test_replicas_by_hand(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    done = ottla("config", "alter", "--all-brokers", "--config", "log.retention.ms=86400000")
    assert (done.code, done.out.decode()) == (0, "altered all brokers\n")
    settings = ottla("config", "describe", "--all-brokers", "-o", "json").document()
    found = {one["name"]: (one["value"], one["source"]) for one in settings}
    assert found["log.retention.ms"] == ("86400000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    done = ottla("config", "alter", "--all-brokers", "--delete-config", "log.retention.ms")
    assert done.code == 0, done.err

    (described,) = ottla("topic", "describe", topic, "-o", "json").document()
    broker = str(described["partitions"][0]["leader"])
    pinned = new_name("cli")
    done = ottla("topic", "create", pinned, "--replica-assignment", f"{broker},{broker}")
    assert done.code == 0, done.err
    (described,) = ottla("topic", "describe", pinned, "-o", "json").document()
    assert [one["replicas"] for one in described["partitions"]] == [[int(broker)]] * 2


def test_describing_shows_where_things_are(ottla: Ottla) -> None:
    topic = ottla.new_topic(2)
    ottla("produce", topic, "--partition", "1", stdin=b"one\ntwo\n")
    (described,) = ottla("topic", "describe", topic, "-o", "json").document()
    assert list(described) == [
        "topic",
        "topic_id",
        "internal",
        "replication_factor",
        "size_bytes",
        "configs",
        "partitions",
    ]
    empty, written = described["partitions"]
    leader = written["leader"]
    assert empty == {
        "partition": 0,
        "leader": leader,
        "leader_epoch": 0,
        "replicas": [leader],
        "in_sync": [leader],
        "earliest_offset": 0,
        "latest_offset": 0,
        "high_watermark": 0,
        "lags": [0],
        "size_bytes": 0,
    }
    assert (written["latest_offset"], written["leader_epoch"]) == (2, 0)
    assert written["size_bytes"] > 61
    text = ottla("topic", "describe", topic).out.decode()
    assert text.startswith(f"{topic}: 2 partitions, replication factor 1, ")
    assert "PARTITION  LEADER  EPOCH" in text
    assert "\x1b" not in text


def test_wrong_settings_are_refused_in_one_line(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    for wrong in ("retention.ms=soon", "no.such.setting=1"):
        done = ottla("topic", "alter", topic, "--config", wrong)
        assert done.code == 1
        assert done.err.startswith(f"ottla: topic {topic}: ")
        assert done.err.count("\n") == 1
        assert "INVALID_CONFIG" in done.err
    done = ottla("topic", "alter", topic, "--partitions", "1")
    assert done.code == 1
    assert "INVALID_PARTITIONS" in done.err


def test_settings_of_topics_and_brokers(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    done = ottla("config", "alter", "--topic", topic, "--config", "cleanup.policy=compact")
    assert (done.code, done.out.decode()) == (0, f"altered topic {topic}\n")
    settings = ottla("config", "describe", "--topic", topic, "-o", "json").document()
    (changed,) = [one for one in settings if one["name"] == "cleanup.policy"]
    documentation, hidden = changed.pop("documentation"), changed.pop("synonyms")
    assert "segments" in documentation
    assert hidden[0] == {
        "name": "cleanup.policy",
        "value": "compact",
        "source": "DYNAMIC_TOPIC_CONFIG",
    }
    assert hidden[-1] == {
        "name": "log.cleanup.policy",
        "value": "delete",
        "source": "DEFAULT_CONFIG",
    }
    assert changed == {
        "name": "cleanup.policy",
        "value": "compact",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "read_only": False,
        "sensitive": False,
        "default": False,
        "type": "LIST",
    }
    everything = ottla("config", "describe", "--topic", topic, "--all", "-o", "json").document()
    assert len(everything) > len(settings)
    assert "cleanup.policy" in ottla("config", "describe", "--topic", topic).out.decode()
    done = ottla("config", "alter", "--topic", topic, "--delete-config", "cleanup.policy")
    assert done.code == 0, done.err

    (described,) = ottla("topic", "describe", topic, "-o", "json").document()
    broker = str(described["partitions"][0]["leader"])
    settings = ottla("config", "describe", "--broker", broker, "--all", "-o", "json").document()
    assert "log.retention.ms" in {one["name"] for one in settings}
    for command in (["describe"], ["alter", "--config", "num.io.threads=4"]):
        done = ottla("config", *command, "--broker", "777")
        assert (done.code, done.out) == (1, b"")
        assert done.err == f"ottla: there is no broker 777; there are {broker}\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(ottla: Ottla, codec: str) -> None:
    topic = ottla.new_topic()
    text = b"".join(b"line %d\n" % number for number in range(1_000)) + b"\xff\xfe\x00\r\n\n"
    done = ottla("produce", topic, "--compression", codec, stdin=text)
    assert (done.code, done.err) == (0, f"produced 1002 records to {topic}\n")
    assert ottla("consume", topic).out == text


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(ottla: Ottla, acks: str) -> None:
    topic = ottla.new_topic()
    report = ottla("produce", topic, "--acks", acks, "-o", "json", stdin=b"a\nb\n").document()
    assert report == {
        "topic": topic,
        "delivered": 2,
        "failed": 0,
        "first_failure": None,
        "partitions": [{"partition": 0, "delivered": 2}],
    }
    if acks == "0":  # what was sent may still be on its way
        wait_until(lambda: latest_offset(ottla, topic) == 2, SECONDS_MAX, "both have arrived")
    assert ottla("consume", topic).out == b"a\nb\n"


def latest_offset(ottla: Ottla, topic: str) -> int:
    (row,) = ottla("topic", "records", topic, "-o", "json").document()
    return int(row["latest_offset"])


def test_keys_headers_nulls_and_formats(ottla: Ottla, tmp_path: Path) -> None:
    topic = ottla.new_topic()
    path = tmp_path / "lines"
    path.write_bytes(b"k1\tv1\nk2\tNULL\nno key\n")
    options = ["-K", "\\t", "--null-marker", "NULL", "-H", "source=test", "-H", "mark"]
    assert ottla("produce", topic, "--file", str(path), *options).code == 0
    done = ottla("consume", topic, "--format", r"%t %p %o|%k|%v|%h|%{header:source}\n")
    assert done.out.decode().splitlines() == [
        f"{topic} 0 0|k1|v1|source=test,mark=|test",
        f"{topic} 0 1|k2||source=test,mark=|test",
        f"{topic} 0 2||no key|source=test,mark=|test",
    ]
    done = ottla("consume", topic, "--key", "--headers", "--null-marker", "-")
    assert done.out.decode().splitlines()[1] == "source=test,mark=-\tk2\t-"


def test_json_lines_come_back_as_they_went(ottla: Ottla) -> None:
    topic, copy = ottla.new_topic(3, *FOR_EVER), ottla.new_topic(3, *FOR_EVER)
    lines = [
        {"key": "k", "value": "v", "partition": 2, "timestamp": 1_700_000_000_123},
        {"key": None, "value": None, "partition": 0, "timestamp": 1_700_000_000_124},
        {"key_base64": "/w==", "value": "", "partition": 1, "timestamp": 1_700_000_000_125}
        | {"headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}]},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert ottla("produce", topic, "--json", stdin=text).code == 0
    first = ottla("consume", topic, "-o", "json")
    by_partition = sorted(first.lines(), key=lambda line: int(line["partition"]))
    assert by_partition[2] == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "v",
        "headers": [],
    }
    assert (by_partition[0]["key"], by_partition[0]["value"]) == (None, None)
    assert (by_partition[1]["key_base64"], by_partition[1]["value"]) == ("/w==", "")
    assert by_partition[1]["headers"] == [{"key": "a", "value": "1"}, {"key": "a", "value": None}]
    assert ottla("produce", copy, "--json", stdin=first.out).code == 0
    again = ottla("consume", copy, "-o", "json").lines()
    expected = [line | {"topic": copy} for line in by_partition]
    assert sorted(again, key=lambda line: int(line["partition"])) == expected


def test_a_key_goes_where_the_java_client_puts_it(ottla: Ottla) -> None:
    # murmur2 of these keys, modulo 4: what Kafka's DefaultPartitioner has always done.
    topic = ottla.new_topic(4)
    ottla("produce", topic, "-K", ":", stdin=b"21:a\nfoobar:b\na-little-bit-long-string:c\n")
    lines = ottla("consume", topic, "-o", "json").lines()
    murmur2 = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    for line in lines:
        assert line["partition"] == (murmur2[line["key"]] & 0x7FFFFFFF) % 4


def test_where_reading_starts(ottla: Ottla) -> None:
    topic = ottla.new_topic(1, *FOR_EVER)
    text = "".join(
        f'{{"value": "{number}", "timestamp": {1_700_000_000_000 + number}}}\n'
        for number in range(10)
    )
    assert ottla("produce", topic, "--json", stdin=text.encode()).code == 0

    def values(*options: str) -> str:
        return "".join(ottla("consume", topic, *options).out.decode().split())

    assert values() == "0123456789"
    assert values("--from", "beginning") == "0123456789"
    assert values("--from", "end") == ""
    assert values("--from", "7") == "789"
    assert values("--from", "-3") == "789"
    assert values("--from", "-99") == "0123456789"
    assert values("--from", "@1700000000004") == "456789"
    assert values("--from", "@2023-11-14T22:13:20.008Z") == "89"
    assert values("--from", "@-1s") == ""
    assert values("--from", "3", "--max-records", "2") == "34"
    past = ottla("consume", topic, "--from", "50")
    assert (past.code, past.out) == (0, b"")
    assert "has no offset 50 (it holds 0 to 10)" in past.err
    missing = ottla("consume", topic, "--partition", "7")
    assert missing.code == 1
    assert missing.err == f"ottla: topic {topic} has no partition 7; it has 1 (from 0)\n"


def test_several_topics_and_partitions(ottla: Ottla) -> None:
    first, second = ottla.new_topic(2), ottla.new_topic()
    for partition in ("0", "1"):
        ottla("produce", first, "-p", partition, stdin=b"%s\n" % partition.encode())
    ottla("produce", second, stdin=b"2\n")
    assert sorted(ottla("consume", first, second).out.split()) == [b"0", b"1", b"2"]
    assert ottla("consume", first, "-p", "1").out == b"1\n"


def test_following_shows_what_comes_until_it_is_interrupted(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    ottla("produce", topic, stdin=b"before\n")
    with ottla.start("consume", topic, "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"before\n"
        ottla("produce", topic, stdin=b"after\n")
        assert follower.stdout.readline() == b"after\n"
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=SECONDS_MAX)
    assert (follower.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_has_enough(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    ottla("produce", topic, stdin=b"x" * 999 + b"\n" + (b"y" * 999 + b"\n") * 2_000)
    with ottla.start("consume", topic) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"x" * 999 + b"\n"
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait(SECONDS_MAX) == 0


def test_what_is_not_delivered_is_counted(ottla: Ottla) -> None:
    topic = ottla.new_topic(1, "--config", "max.message.bytes=1000")
    done = ottla("produce", topic, stdin=b"ok\n" + b"x" * 5_000 + b"\nok\n")
    assert done.code == 1
    produced, reason = done.err.splitlines()
    assert produced == f"produced 2 records to {topic}"
    assert reason.startswith("ottla: 1 of 3 records not delivered; the first because: ")
    assert "MESSAGE_TOO_LARGE" in reason
    assert ottla("consume", topic).out == b"ok\nok\n"


def test_a_bad_line_stops_and_says_what_was_sent(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    done = ottla("produce", topic, "--json", stdin=b'{"value": "1"}\nnonsense\n{"value": "3"}\n')
    assert done.code == 1
    produced, reason = done.err.splitlines()
    assert produced == f"produced 1 record to {topic}"
    assert reason.startswith("ottla: stdin, line 2: no JSON")
    assert ottla("consume", topic).out == b"1\n"


def test_deleting_records(ottla: Ottla) -> None:
    topic = ottla.new_topic(2)
    for partition in ("0", "1"):
        ottla("produce", topic, "-p", partition, stdin=b"0\n1\n2\n3\n")

    def held(*options: str) -> list[tuple[int, int, int]]:
        rows = ottla("topic", "records", topic, "-o", "json", *options).document()
        return [(row["partition"], row["earliest_offset"], row["latest_offset"]) for row in rows]

    assert held() == [(0, 0, 4), (1, 0, 4)]
    assert held("--delete-before", "1", "--partition", "1") == [(1, 1, 4)]
    assert held() == [(0, 0, 4), (1, 1, 4)]
    assert sorted(ottla("consume", topic).out.split()) == [b"0", b"1", b"1", b"2", b"2", b"3", b"3"]
    assert held("--delete-before", "-1") == [(0, 3, 4), (1, 3, 4)]
    assert held("--delete-all") == [(0, 4, 4), (1, 4, 4)]
    assert ottla("consume", topic).out == b""


def test_a_name_that_is_nearly_right(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    done = ottla("consume", topic[:-1])
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith(f"ottla: topic {topic[:-1]} does not exist; did you mean cli-")
    assert topic[:-1] not in {row["topic"] for row in ottla.topics()}


def test_the_shell_completes_topic_names(ottla: Ottla) -> None:
    topic = ottla.new_topic()
    words = f"ottla topic describe {topic[:-2]}"
    completing = {"_OTTLA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = subprocess.run(
        OTTLA, capture_output=True, env=ottla.environment | completing, check=True
    )
    assert done.stdout.decode().split() == [topic]


def test_a_broker_that_goes_away(make_node: MakeNode) -> None:
    node = make_node()
    ottla = Ottla(node.bootstrap)
    topic = ottla.new_topic()
    ottla("produce", topic, stdin=b"one\n")
    with ottla.start("consume", topic, "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == b"one\n"
        node.stop()
        assert b"the connection is lost" in follower.stderr.readline()
        gone = ottla("topic", "list")
        assert gone.code == 1
        assert (
            gone.err
            == f"ottla: nothing answers at {node.bootstrap}; start one with `ottla serve`\n"
        )
        node.start()
        assert ottla("produce", topic, stdin=b"two\n").code == 0
        assert follower.stdout.readline() == b"two\n"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(SECONDS_MAX) == 0


def test_the_files_of_a_broker_are_sound(make_node: MakeNode) -> None:
    node = make_node()
    ottla = Ottla(node.bootstrap)
    topic = ottla.new_topic(1, "--config", "segment.bytes=1048576", *FOR_EVER)
    lines = b"".join(b"%d:some text for line %d\n" % (number, number) for number in range(60_000))
    assert ottla("produce", topic, "-K", ":", stdin=lines).code == 0
    node.stop()
    directory = str(node.partition_directory(topic))
    found = ottla("log", "dump", directory, "--records", "-o", "json").lines()
    types = {line["type"] for line in found}
    assert types == {"batch", "record", "offset_index_entry", "time_index_entry", "producer"}
    records = [line for line in found if line["type"] == "record"]
    assert [line["offset"] for line in records] == list(range(60_000))
    assert records[-1]["value"] == "some text for line 59999"
    assert len({line["file"] for line in found if line["type"] == "batch"}) > 1
