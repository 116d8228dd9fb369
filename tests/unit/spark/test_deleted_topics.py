"""When a topic counts as deleted: brokers are scripts, time is a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.core import Core
from ottla.client.settings import AdminSettings, read_settings
from ottla.protocol.api_keys import METADATA
from ottla.protocol.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from ottla.spark.deleted_topics import ROUNDS_WANTED, DeletedTopics
from tests.unit.client.pure_world import FIRST_PORT, World, metadata

TOPIC = ("t", "some id")
NODES = 3
AWAY = "away"


class Brokers:
    """Three of them, each with its own word about the topic: leaders, an error code, or AWAY."""

    def __init__(self) -> None:
        servers = f"broker:{FIRST_PORT}"
        settings = read_settings(AdminSettings, {"bootstrap.servers": servers}, {})
        self.core = Core(settings, lambda: 0.5)
        self.world = World(self.core, {METADATA: self._answer})
        self.words: list[Any] = [[0]] * NODES
        self.deleted = DeletedTopics(self.core)
        self.world.run(self.core.metadata.topic("t", 10_000))

    def _answer(self, request: Any, version: int) -> Mapping[str, Any] | Exception:
        word = self.words[self.world.requests[-1][0] - FIRST_PORT]
        return ConnectionError() if word == AWAY else metadata({"t": word}, nodes=NODES)

    def ask(self, *words: Any) -> bool:
        self.words = list(words)
        return bool(self.world.run(self.deleted.ask(TOPIC)))


GONE = [UNKNOWN_TOPIC_OR_PARTITION] * NODES


def test_it_takes_several_rounds_in_which_nobody_knows_it() -> None:
    brokers = Brokers()
    assert not brokers.deleted.is_likely(TOPIC)
    assert [brokers.ask(*GONE) for _ in range(ROUNDS_WANTED)] == [False, False, True]
    assert brokers.deleted.is_likely(TOPIC)
    # Another one under the same name has nothing to do with it.
    assert not brokers.deleted.is_likely(("t", "another id"))
    # The next range of it needs no further three.
    assert brokers.ask(*GONE)


def test_one_who_knows_it_outweighs_the_others_and_is_believed() -> None:
    brokers = Brokers()
    for _ in range(2):
        assert not brokers.ask(*GONE)
    info = brokers.core.cluster.topics["t"]
    info.error_code = UNKNOWN_TOPIC_OR_PARTITION
    assert not brokers.ask(GONE[0], GONE[0], [2])
    assert not brokers.deleted.is_likely(TOPIC)
    assert brokers.core.cluster.topics["t"].error_code == 0
    assert brokers.core.cluster.leader_of("t", 0) == 2
    assert [brokers.ask(*GONE) for _ in range(ROUNDS_WANTED)] == [False, False, True]


def test_one_who_does_not_answer_may_know_it() -> None:
    brokers = Brokers()
    for _ in range(ROUNDS_WANTED + 1):
        assert not brokers.ask(GONE[0], AWAY, GONE[0])
    assert not brokers.deleted.is_likely(TOPIC)


def test_a_record_of_it_is_proof() -> None:
    brokers = Brokers()
    for _ in range(2):
        assert not brokers.ask(*GONE)
    brokers.deleted.forget(TOPIC)
    assert not brokers.ask(*GONE)


def test_without_a_broker_nothing_is_known() -> None:
    brokers = Brokers()
    brokers.core.cluster.brokers = {}
    assert not any(brokers.ask(*GONE) for _ in range(ROUNDS_WANTED + 1))
