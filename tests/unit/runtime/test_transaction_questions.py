"""Goal: leaders learn from the coordinator of a transaction, wherever it is, what belongs to it.
Method: played peers, a coordinator on this broker that keeps what it was asked.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.protocol.error_codes import COORDINATOR_NOT_AVAILABLE
from ottla.runtime.peers import Peers
from ottla.runtime.transaction_questions import Owner, TransactionQuestions
from tests.unit.runtime.played_peers import Played, PlayedPeers

T0, T1, S0 = ("t", 0), ("t", 1), ("s", 0)
COORDINATORS = {"here": 1, "there": 2, "nowhere": -1}


class Setting:
    def __init__(self) -> None:
        self.peers = PlayedPeers()
        self.local: list[tuple[Any, ...]] = []
        self.questions = TransactionQuestions(1, self, cast(Peers, self.peers))

    def leader_of(self, transactional_id: str) -> int:
        return COORDINATORS.get(transactional_id, 2)

    def add_partitions(self, *asked: Any) -> Deferred[int]:
        self.local.append(("add", *asked))
        return Deferred()

    def verify_partitions(self, *asked: Any) -> Deferred[Any]:
        self.local.append(("verify", *asked))
        return Deferred()


def owner(name: str = "there") -> Owner:
    return Owner(name, 1000, 3)


def say(played: Played, code: int = 0, error_code: int = 0) -> None:
    played.answer(
        error_code=error_code,
        results_by_transaction=[
            {
                "transactional_id": one.transactional_id,
                "topic_results": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {"partition_index": index, "partition_error_code": code}
                            for index in topic.partitions
                        ],
                    }
                    for topic in one.topics
                ],
            }
            for one in played.request.transactions
        ],
    )


@pytest.fixture
def setting() -> Setting:
    return Setting()


def refusal(asked: Deferred[Any]) -> int:
    with pytest.raises(ProtocolError) as refused:
        asked.result()
    return refused.value.code


def test_the_coordinator_is_here(setting: Setting) -> None:
    setting.questions.add(owner("here"), [T0], 2, 20)
    setting.questions.verify(owner("here"), [T0])
    assert setting.local == [
        ("add", "here", 1000, 3, [T0], 2, 20),
        ("verify", "here", 1000, 3, [T0]),
    ]
    assert not setting.peers.asked


def test_the_coordinator_is_elsewhere(setting: Setting) -> None:
    asked = setting.questions.verify(owner(), [T0, T1, S0])
    [played] = setting.peers.asked
    assert (played.broker_id, played.api_key, played.version) == (2, 24, 5)
    [one] = played.request.transactions
    assert (one.transactional_id, one.producer_id, one.producer_epoch) == ("there", 1000, 3)
    assert one.verify_only
    assert [(topic.name, topic.partitions) for topic in one.topics] == [("t", [0, 1]), ("s", [0])]
    say(played, 48)
    assert asked.result() == {T0: 48, T1: 48, S0: 48}


@pytest.mark.parametrize("code", [0, 51, 90])
def test_adding(setting: Setting, code: int) -> None:
    asked = setting.questions.add(owner(), [T0, T1], 2, 20)
    [played] = setting.peers.asked
    assert not played.request.transactions[0].verify_only
    say(played, code)
    assert asked.result() == code


def test_many_transactions_go_together_but_each_once(setting: Setting) -> None:
    setting.questions.verify(owner("first"), [T0])
    asked = [setting.questions.verify(owner(name), [T0]) for name in ("a", "b", "a")]
    say(setting.peers.asked.pop())
    assert [one.transactional_id for one in setting.peers.asked[0].request.transactions] == [
        "a",
        "b",
    ]
    say(setting.peers.asked.pop())
    say(setting.peers.asked.pop(), 48)
    assert [one.result()[T0] for one in asked] == [0, 0, 48]


def test_nobody_coordinates(setting: Setting) -> None:
    assert (
        refusal(setting.questions.add(owner("nowhere"), [T0], 2, 20)) == COORDINATOR_NOT_AVAILABLE
    )


def test_a_lost_answer(setting: Setting) -> None:
    asked = setting.questions.add(owner(), [T0], 2, 20)
    setting.peers.asked.pop().lose()
    assert refusal(asked) == COORDINATOR_NOT_AVAILABLE


def test_a_refusal_of_the_whole(setting: Setting) -> None:
    asked = setting.questions.verify(owner(), [T0])
    say(setting.peers.asked.pop(), error_code=31)
    assert refusal(asked) == 31


def test_an_answer_that_leaves_something_out(setting: Setting) -> None:
    asked = setting.questions.verify(owner(), [T0])
    setting.peers.asked.pop().answer(error_code=0, results_by_transaction=[])
    assert refusal(asked) == COORDINATOR_NOT_AVAILABLE
