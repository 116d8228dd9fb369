"""Goal: of several topics each is tried, what was done is told, also where others did not work, and
who comes in between does no harm where it is said to be fine.
Method: a played connection.
"""

from __future__ import annotations

import json

import pytest

from ottla.cli import main, topic
from ottla.cli.failure import Failure
from ottla.cli.model import NewTopic
from ottla.client.errors import BrokerError
from ottla.protocol.error_codes import TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION


class PlayedTopic:
    internal = False

    def __init__(self, name: str) -> None:
        self.name = name


class PlayedConnection:
    def __init__(self) -> None:
        self.names = {"there"}
        self.listed = {"there"}
        """As somebody sees them before others change them."""

    def topics(self) -> list[PlayedTopic]:
        return [PlayedTopic(name) for name in self.listed]

    def places(self, names: list[str]) -> None:
        missing = next(name for name in names if name not in self.listed)
        raise Failure(f"topic {missing} does not exist")

    def create_topic(self, wanted: NewTopic) -> None:
        if wanted.name in self.names:
            refuse(wanted.name, TOPIC_ALREADY_EXISTS)
        self.names.add(wanted.name)

    def delete_topic(self, name: str) -> None:
        if name not in self.names:
            refuse(name, UNKNOWN_TOPIC_OR_PARTITION)
        self.names.remove(name)


def refuse(name: str, code: int) -> None:
    cause = BrokerError(code)
    raise Failure(f"topic {name}: {cause.name}") from cause


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> PlayedConnection:
    played = PlayedConnection()
    monkeypatch.setattr(topic, "connect", lambda *arguments: played)
    return played


Captured = pytest.CaptureFixture[str]


def test_what_was_created_is_told_though_another_was_refused(
    connection: PlayedConnection, capsys: Captured
) -> None:
    assert main.run(["topic", "create", "a", "there", "b"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "created a\ncreated b\n"
    assert captured.err == "ottla: topic there: TOPIC_ALREADY_EXISTS\n"
    assert connection.names == {"a", "b", "there"}
    assert main.run(["topic", "create", "c", "there", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "c", "created": True},
        {"topic": "there", "created": False, "error": "topic there: TOPIC_ALREADY_EXISTS"},
    ]


def test_a_name_that_comes_twice_counts_once(
    connection: PlayedConnection, capsys: Captured
) -> None:
    assert main.run(["topic", "create", "a", "a"]) == 0
    assert capsys.readouterr().out == "created a\n"
    connection.listed = set(connection.names)
    assert main.run(["topic", "delete", "a", "a", "--yes"]) == 0
    assert capsys.readouterr().out == "deleted a\n"


def test_one_that_is_made_meanwhile_is_there(
    connection: PlayedConnection, capsys: Captured
) -> None:
    connection.listed = set()
    assert main.run(["topic", "create", "there", "new", "--if-not-exists"]) == 0
    assert capsys.readouterr().out == "there is there\ncreated new\n"


def test_one_that_is_deleted_meanwhile_is_gone(
    connection: PlayedConnection, capsys: Captured
) -> None:
    connection.listed = {"there", "gone"}
    assert main.run(["topic", "delete", "gone", "there", "never", "--if-exists", "--yes"]) == 0
    assert capsys.readouterr().out == "deleted there\n"
    connection.names.add("there")
    assert main.run(["topic", "delete", "gone", "there", "--yes", "-o", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["topic"], row["deleted"]) for row in rows] == [("gone", False), ("there", True)]
