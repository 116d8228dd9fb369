"""Goal: a generated plan is even, keeps racks apart, moves as little as it can; nonsense in a plan
is refused in one line.
Method: the pure functions.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from ottla.cli.failure import Failure
from ottla.cli.reassign_plan import Plan, parse_plan, plan_document, spread
from tests.seeds import seed_for

THREE: dict[int, str | None] = {1: None, 2: None, 3: None}


def moves(before: Plan, after: Plan) -> int:
    return sum(len(set(after[place]) - set(before[place])) for place in before)


def test_what_is_even_stays() -> None:
    plan: Plan = {("t", 0): [1, 2, 3], ("t", 1): [2, 3, 1], ("t", 2): [3, 1, 2]}
    assert spread(plan, THREE, None) == plan


def test_a_new_broker_gets_its_share_and_no_more() -> None:
    before: Plan = {("t", index): [1, 2, 3] for index in range(4)}
    after = spread(before, {**THREE, 4: None}, None)
    assert Counter(one for some in after.values() for one in some) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert moves(before, after) == 3
    assert sorted(some[0] for some in after.values()) == [1, 2, 3, 4]


def test_a_broker_that_is_not_wanted_is_emptied() -> None:
    before: Plan = {("t", 0): [1, 2], ("t", 1): [2, 3], ("t", 2): [3, 1]}
    after = spread(before, {1: None, 2: None}, None)
    assert all(set(some) == {1, 2} for some in after.values())


def test_more_and_fewer_replicas() -> None:
    before: Plan = {("t", 0): [1], ("t", 1): [1]}
    assert all(len(some) == 3 for some in spread(before, THREE, 3).values())
    after = spread({("t", 0): [3, 1, 2]}, THREE, 1)
    assert after == {("t", 0): [3]}


def test_racks_are_kept_apart() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = spread({("t", index): [1] for index in range(8)}, racks, 2)
    assert all(len({racks[one] for one in some}) == 2 for some in after.values())
    assert set(Counter(one for some in after.values() for one in some).values()) == {4}


def test_too_few_brokers() -> None:
    with pytest.raises(Failure, match="t-0 shall have 4 replicas on 3 brokers"):
        spread({("t", 0): [1]}, THREE, 4)


@pytest.mark.parametrize("number", range(30))
def test_any_layout_becomes_an_even_one(number: int) -> None:
    chance = random.Random(seed_for(f"reassign plan {number}"))
    brokers = chance.sample(range(1, 20), chance.randint(3, 8))
    before: Plan = {
        ("t", index): chance.sample(range(1, 20), 3) for index in range(chance.randint(1, 40))
    }
    after = spread(before, dict.fromkeys(brokers), None)
    assert all(len(set(some)) == 3 and set(some) <= set(brokers) for some in after.values())
    loads = Counter(dict.fromkeys(brokers, 0))
    loads.update(one for some in after.values() for one in some)
    assert max(loads.values()) - min(loads.values()) <= 1


def test_a_plan_survives_its_way_through_json() -> None:
    plan: Plan = {("a", 1): [2, 1], ("b", 0): [3]}
    assert parse_plan(json.dumps(plan_document(plan)), "plan") == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"partitions": 5}',
        '{"partitions": []}',
        '{"partitions": [{"topic": "t", "partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
        '{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}',
        '{"partitions": [{"topic": ["t"], "partition": 0, "replicas": [1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
        ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="plan"):
        parse_plan(text, "plan")
