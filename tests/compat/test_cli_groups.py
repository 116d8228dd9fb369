"""The group commands of `ottla` against a real broker, and its demo.

The broker starts groups without delay and takes short sessions, so that nothing has to be waited
for but what is meant. Kafka's own tool judges the resets.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.compat.command import OTTLA, Done, Ottla
from tests.compat.confluent import new_name
from tests.compat.java_host import JavaHost
from tests.compat.nodes import node_kind
from tests.patience import SECONDS_MAX

PROTOCOLS = ["classic", "consumer"]
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    # A member of the consumer protocol is told how often to call, so that it hears of changes soon.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("OTTLA_COMPAT_BOOTSTRAP")
    if given is not None:
        yield given
        return
    node = node_kind()(tmp_path_factory.mktemp("groups"), OVERRIDES)
    node.start()
    yield node.bootstrap
    node.close()


@pytest.fixture
def ottla(group_broker: str) -> Ottla:
    return Ottla(group_broker)


def committed(ottla: Ottla, group: str) -> dict[int, int]:
    rows = ottla("group", "lag", group, "--partitions", "-o", "json").document()
    return {row["partition"]: row["committed_offset"] for row in rows}


def filled_topic(ottla: Ottla, partitions: int = 1, each: int = 10) -> str:
    topic = ottla.new_topic(partitions, "--config", "retention.ms=-1")
    for partition in range(partitions):
        lines = "".join(
            f'{{"value": "{partition}@{offset}", "partition": {partition},'
            f' "timestamp": {1_700_000_000_000 + offset}}}\n'
            for offset in range(each)
        )
        assert ottla("produce", topic, "--json", stdin=lines.encode()).code == 0
    return topic


@contextmanager
def member(ottla: Ottla, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone afterwards."""
    with ottla.start("consume", *arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(stream: IO[bytes] | None, text: str) -> None:
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line.decode())
        if text in lines[-1]:
            return
    raise AssertionError(f"it ended without {text!r}: {lines}")


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> Done:
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS_MAX)
    return Done(process.returncode, out, err.decode())


# --------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_committed(ottla: Ottla, protocol: str) -> None:
    topic, group = filled_topic(ottla, 2, 5), new_name("group")
    read = ["consume", topic, "--group", group, "--protocol", protocol]
    first = ottla(*read, "--max-records", "4", "--verbose")
    assert first.code == 0, first.err
    assert f"assigned {topic}-0, {topic}-1" in first.err
    assert first.err.endswith(f"left group {group}\n")
    rest = ottla(*read)
    assert (rest.code, rest.err) == (0, "")
    everything = {b"%d@%d" % (partition, offset) for partition in (0, 1) for offset in range(5)}
    assert sorted(first.out.split() + rest.out.split()) == sorted(everything)
    assert committed(ottla, group) == {0: 5, 1: 5}
    ottla("produce", topic, "--partition", "0", stdin=b"more\n")
    assert ottla(*read).out == b"more\n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_says_that_it_keeps_its_place(ottla: Ottla, protocol: str) -> None:
    topic, group = filled_topic(ottla), new_name("group")
    arguments = (topic, "--group", group, "--protocol", protocol, "--instance", "one")
    done = ottla("consume", *arguments, "--verbose")
    assert done.err.endswith(f"away from group {group}; instance one keeps its place\n")
    (described,) = ottla("group", "members", group, "-o", "json").document()
    assert [one["instance_id"] for one in described["members"]] == ["one"]


@pytest.mark.parametrize("commit", ["before", "after"])
def test_commits_by_the_number(ottla: Ottla, commit: str) -> None:
    topic, group = filled_topic(ottla), new_name("group")
    options = ["--commit", commit, "--commit-every", "4", "--verbose"]
    done = ottla("consume", topic, "--group", group, *options)
    commits = [line for line in done.err.splitlines() if line.startswith("committed")]
    assert commits[-1] == f"committed {topic}-0@10"
    assert len(commits) >= 3
    assert committed(ottla, group) == {0: 10}


def test_by_hand_only_what_is_asked_for_is_committed(ottla: Ottla) -> None:
    topic, group = filled_topic(ottla), new_name("group")
    read = ["consume", topic, "--group", group, "--commit", "manual"]
    assert len(ottla(*read).out.split()) == 10
    assert committed_or_nothing(ottla, group) == {}
    assert len(ottla(*read, "--commit-every", "4").out.split()) == 10
    assert committed(ottla, group) == {0: 8}
    assert ottla(*read).out.split() == [b"0@8", b"0@9"]


def committed_or_nothing(ottla: Ottla, group: str) -> dict[int, int]:
    done = ottla("group", "lag", group, "--partitions", "-o", "json")
    return {} if done.code else committed(ottla, group)


def test_where_a_group_starts(ottla: Ottla) -> None:
    topic = filled_topic(ottla)
    assert ottla("consume", topic, "-g", new_name("group"), "--from", "end").out == b""
    whole = ottla("consume", topic, "-g", new_name("group"), "--from", "beginning")
    assert len(whole.out.split()) == 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_member_in_order(ottla: Ottla, number: signal.Signals) -> None:
    topic, group = filled_topic(ottla), new_name("group")
    with member(ottla, topic, "-g", group, "--follow", "-v", "--commit-every", "1000") as process:
        assert process.stdout is not None
        for offset in range(10):
            assert process.stdout.readline() == b"0@%d\n" % offset
        done = end(process, number)
    assert (done.code, done.out) == (0, b"")
    assert done.err.splitlines()[-3:] == [
        f"committed {topic}-0@10",
        f"revoked {topic}-0",
        f"left group {group}",
    ]
    (listed,) = [
        one for one in ottla("group", "list", "-o", "json").document() if one["group"] == group
    ]
    assert (listed["state"], listed["protocol"]) == ("Empty", "classic")


def killed_at_the_first_record(ottla: Ottla, topic: str, group: str, commit: str) -> list[bytes]:
    """Everything that two members showed, the first of which is killed."""
    way = [topic, "--group", group, "--commit", commit, "--commit-every", "10"]
    # A static member takes its old place again: nobody has to wait until it is missed.
    way += ["--instance", "desk"]
    # Its second record is far away: it is dead by then, however busy the machine is.
    with member(ottla, *way, "--rate", "0.02", "--follow") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.kill()
        shown = [first.strip(), *process.stdout.read().split()]
    return shown + ottla("consume", *way).out.split()


def test_killed_after_showing_and_before_the_commit(ottla: Ottla) -> None:
    topic = filled_topic(ottla)
    shown = killed_at_the_first_record(ottla, topic, new_name("group"), "after")
    assert set(shown) == {b"0@%d" % offset for offset in range(10)}, "nothing is skipped"
    assert shown.count(b"0@0") == 2


def test_killed_after_the_commit_and_before_showing(ottla: Ottla) -> None:
    topic = filled_topic(ottla)
    shown = killed_at_the_first_record(ottla, topic, new_name("group"), "before")
    assert shown[0] == b"0@0"
    assert len(shown) == len(set(shown)) < 10, "nothing comes twice, something is lost"


# ---------------------------------------------------------------------------------- two members


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_hand_over(ottla: Ottla, protocol: str, tmp_path: Path) -> None:
    topic, group = ottla.new_topic(4), new_name("group")
    options = [topic, "--group", group, "--protocol", protocol, "--follow", "--verbose"]
    if protocol == "classic":
        quick = tmp_path / "quick.properties"
        quick.write_text(
            "heartbeat.interval.ms=200\npartition.assignment.strategy=cooperative-sticky\n"
        )
        options += ["--command-config", str(quick)]
    with member(ottla, *options) as anna:
        wait_for(anna.stderr, f"assigned {topic}-0, {topic}-1, {topic}-2, {topic}-3")
        with member(ottla, *options) as bert:
            wait_for(anna.stderr, "revoked")
            wait_for(bert.stderr, f"assigned {topic}-")
            held = shares(ottla, group)
            assert sorted(map(len, held)) == [2, 2]
            assert sorted(one for share in held for one in share) == [0, 1, 2, 3]
            refused = ottla("group", "reset", group, "-t", topic, "--to-latest", "--execute")
            assert refused.code == 1
            assert "offsets can only be reset while the group is inactive" in refused.err
            assert "with 2 members" in refused.err
            refused = ottla("group", "delete", group, "--yes")
            assert refused.code == 1
            assert "NON_EMPTY_GROUP" in refused.err
            assert end(bert, signal.SIGTERM).code == 0
        wait_for(anna.stderr, f"assigned {topic}-")
        (share,) = shares(ottla, group)
        assert share == [0, 1, 2, 3]
        assert end(anna, signal.SIGINT).code == 0


def shares(ottla: Ottla, group: str) -> list[list[int]]:
    (described,) = ottla("group", "members", group, "-o", "json").document()
    return [[one["partition"] for one in row["partitions"]] for row in described["members"]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_describing_a_group_at_work(ottla: Ottla, protocol: str) -> None:
    topic, group = filled_topic(ottla, 2), new_name("group")
    way = [topic, "-g", group, "--protocol", protocol, "--instance", "desk", "--follow", "-v"]
    with member(ottla, *way, "--commit", "manual", "--commit-every", "10") as process:
        wait_for(process.stderr, "committed")
        wait_for(process.stderr, "committed")
        (described,) = ottla("group", "describe", group, "-o", "json").document()
        assert list(described) == [
            "group",
            "state",
            "protocol",
            "assignor",
            "coordinator",
            "member_count",
            "lag",
            "partitions",
        ]
        assert (described["state"], described["protocol"]) == ("Stable", protocol)
        assert (described["member_count"], described["lag"]) == (1, 0)
        for number, row in enumerate(described["partitions"]):
            assert row["member_id"]
            assert row | {"member_id": ""} == {
                "topic": topic,
                "partition": number,
                "committed_offset": 10,
                "latest_offset": 10,
                "lag": 0,
                "member_id": "",
                "client_id": "ottla-cli",
                "host": "127.0.0.1",
            }
        (described,) = ottla("group", "members", group, "-o", "json").document()
        (row,) = described["members"]
        assert row["instance_id"] == "desk"
        held = [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        assert row["partitions"] == held
        assert row["target"] == (held if protocol == "consumer" else None)
        text = ottla("group", "members", group).out.decode()
        assert f"{topic}:0-1" in text
        assert end(process, signal.SIGTERM).code == 0


# ------------------------------------------------------------------------------ lag, delete, shell


def test_lag_and_watching_it(ottla: Ottla) -> None:
    topic, group = filled_topic(ottla, 2), new_name("group")
    made = ottla("group", "reset", group, "--topic", topic, "--to-offset", "4", "--execute")
    assert made.code == 0, made.err
    (row,) = ottla("group", "lag", group, "-o", "json").document()
    assert row == {"group": group, "topic": topic, "partitions": 2, "lag": 12, "lag_max": 6}
    assert group in ottla("group", "lag").out.decode()
    watch = ["group", "lag", group, "--watch", "--interval", "0.1", "--count", "2"]
    looks = ottla(*watch, "-o", "json").lines()
    assert [look["rows"][0]["lag"] for look in looks] == [12, 12]
    assert looks[1]["rows"][0]["change"] == 0
    lines = ottla(*watch).out.decode().splitlines()
    assert [f" {group} {topic} lag 12" in line for line in lines] == [True, True]


def test_deleting_a_group(ottla: Ottla) -> None:
    topic, group = filled_topic(ottla), new_name("group")
    ottla("group", "reset", group, "--topic", topic, "--to-latest", "--execute")
    done = ottla("group", "delete", group)
    assert (done.code, done.out.decode()) == (0, f"deleted {group}\n"), done.err
    for command in ("describe", "members", "lag", "delete"):
        gone = ottla("group", command, group)
        assert (gone.code, gone.out) == (1, b"")
        assert f"group {group} does not exist" in gone.err
    assert ottla("group", "delete", group, "--if-exists").code == 0


def test_the_shell_completes_group_names(ottla: Ottla) -> None:
    topic, group = filled_topic(ottla), new_name("group")
    ottla("group", "reset", group, "--topic", topic, "--to-latest", "--execute")
    words = f"ottla group describe {group[:-2]}"
    completing = {"_OTTLA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = subprocess.run(
        OTTLA, capture_output=True, env=ottla.environment | completing, check=True
    )
    assert done.stdout.decode().split() == [group]


# ---------------------------------------------------------------------------------------- resets


def test_the_ways_of_resetting(ottla: Ottla, tmp_path: Path) -> None:
    topic, group = filled_topic(ottla, 2), new_name("group")

    def reset(*way: str) -> dict[int, int]:
        done = ottla("group", "reset", group, *way, "--execute", "-o", "json")
        planned = {row["partition"]: row["new_offset"] for row in done.document()["partitions"]}
        now = committed(ottla, group)
        assert planned.items() <= now.items()
        return now

    on_topic, everywhere = ["--topic", topic], ["--all-topics"]
    assert reset(*on_topic, "--to-earliest") == {0: 0, 1: 0}
    assert reset(*on_topic, "--to-latest") == {0: 10, 1: 10}
    assert reset("--topic", f"{topic}:1", "--to-offset", "3") == {0: 10, 1: 3}
    assert reset(*everywhere, "--shift-by", "-2") == {0: 8, 1: 1}
    assert reset(*everywhere, "--shift-by", "5") == {0: 10, 1: 6}
    assert reset(*everywhere, "--to-current") == {0: 10, 1: 6}
    assert reset(*on_topic, "--to-datetime", "2023-11-14T22:13:20.007Z") == {0: 7, 1: 7}
    assert reset(*on_topic, "--by-duration", "PT1H") == {0: 10, 1: 10}
    assert reset(*on_topic, "--by-duration", "9000d") == {0: 0, 1: 0}
    exported = ottla("group", "reset", group, *everywhere, "--to-offset", "5", "--export")
    assert exported.out.decode() == f"{topic},0,5\n{topic},1,5\n"
    path = tmp_path / "offsets.csv"
    path.write_bytes(exported.out)
    assert committed(ottla, group) == {0: 0, 1: 0}
    assert reset("--from-file", str(path)) == {0: 5, 1: 5}
    read = ottla("consume", topic, "--group", group)
    assert sorted(read.out.split()) == sorted(
        b"%d@%d" % (partition, offset) for partition in (0, 1) for offset in range(5, 10)
    )


@pytest.mark.java
@pytest.mark.xdist_group("java")
def test_kafkas_tool_plans_the_same(
    ottla: Ottla, group_broker: str, java: JavaHost, tmp_path: Path
) -> None:
    topic, group = filled_topic(ottla, 2), new_name("group")
    prepare = ["group", "reset", group, "--topic", f"{topic}:0", "--to-offset", "4", "--execute"]
    assert ottla(*prepare).code == 0
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,2\n{topic},1,99\n")
    ways: list[list[str]] = [
        ["--topic", topic, "--to-earliest"],
        ["--topic", topic, "--to-latest"],
        ["--topic", topic, "--to-current"],
        ["--topic", topic, "--to-offset", "99"],
        ["--topic", f"{topic}:1", "--to-offset", "7"],
        ["--topic", topic, "--to-datetime", "2023-11-14T22:13:20.003Z"],
        ["--topic", topic, "--by-duration", "PT5S"],
        ["--all-topics", "--shift-by", "-9"],
        ["--all-topics", "--shift-by", "3"],
        ["--from-file", str(path)],
    ]
    command = ["--bootstrap-server", group_broker, "--group", group, "--reset-offsets"]
    for way in ways:
        tool = java.tool("consumer.group.ConsumerGroupCommand", *command, *way, "--dry-run")
        theirs = {
            (row.split()[1], int(row.split()[2])): int(row.split()[3])
            for row in tool.output.splitlines()
            if row.startswith(group)
        }
        planned = ottla("group", "reset", group, *way, "-o", "json").document()
        ours = {
            (row["topic"], row["partition"]): row["new_offset"] for row in planned["partitions"]
        }
        assert ours == theirs, (way, tool)


# ------------------------------------------------------------------------------------------ demo


def figures_of(text: str) -> dict[str, int]:
    last = text.splitlines()[-1]
    match = re.fullmatch(
        r"Greetings: (?P<groups>\d+) groups; delivered once (?P<once>\d+), twice (?P<twice>\d+),"
        r" never (?P<never>\d+); [\d.]+ s",
        last,
    )
    assert match is not None, last
    return {name: int(number) for name, number in match.groupdict().items()}


def test_the_greetings_demo_on_a_broker_of_its_own(tmp_path: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*OTTLA, "demo", "greetings"], capture_output=True, env=environment, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    figures = figures_of(done.stdout)
    # A busy machine may let the one that is to be killed show a second record.
    assert figures["groups"] == 6
    assert 1 <= figures["twice"] <= 2
    assert 1 <= figures["never"] <= 2
    assert figures["once"] + figures["twice"] + figures["never"] == 20
    assert "48 65 6c 6c 6f" in done.stdout
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"
