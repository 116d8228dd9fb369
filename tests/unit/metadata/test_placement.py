"""Goal: leaders and replicas are spread evenly, never twice on a broker, over racks if there are.
Method: the layouts worked out by hand; random clusters against the definitions of even and apart.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ProtocolError
from ottla.metadata.image import BrokerRegistration
from ottla.metadata.placement import Seed, place, seed_to_continue
from ottla.protocol.error_codes import INVALID_REPLICATION_FACTOR


def brokers(count: int, *racks: str) -> list[BrokerRegistration]:
    return [
        BrokerRegistration(broker, 1, {}, racks[broker % len(racks)] if racks else None)
        for broker in range(count)
    ]


def fenced(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, -1, {}, fenced=True)


def test_by_hand() -> None:
    assert place(brokers(5), 3, 10, Seed(0, 0)) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_start_and_shift() -> None:
    assert place(brokers(4), 2, 4, Seed(1, 1)) == [(1, 3), (2, 0), (3, 1), (0, 2)]


def test_the_order_of_the_brokers_does_not_matter() -> None:
    assert place(reversed(brokers(4)), 2, 9, Seed(3, 7)) == place(brokers(4), 2, 9, Seed(3, 7))


def test_six_partitions_on_three_brokers_give_each_two_leaders() -> None:
    placed = place(brokers(3), 1, 6, Seed.of(2**100 + 12345))
    assert Counter(replicas[0] for replicas in placed) == {0: 2, 1: 2, 2: 2}


def test_racks_alternate() -> None:
    # rack of a broker: 0 a, 1 b, 2 c, 3 a, 4 b, 5 c
    placed = place(brokers(6, "a", "b", "c"), 3, 6, Seed(0, 0))
    assert all(len({replica % 3 for replica in replicas}) == 3 for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(6), 1)


def test_a_second_replica_in_a_rack_only_when_all_have_one() -> None:
    placed = place(brokers(4, "a", "b"), 3, 8, Seed(0, 0))
    assert all(len({replica % 2 for replica in replicas}) == 2 for replicas in placed)


def test_racks_of_unequal_size_get_equal_shares_while_they_can() -> None:
    # rack a: 0, 2, 4, 6; rack b: 1, 3
    uneven = [each for each in brokers(7, "a", "b") if each.broker_id != 5]
    for replicas in place(uneven, 4, 12, Seed(3, 2)):
        assert sum(replica % 2 for replica in replicas) == 2


def test_racks_are_left_aside_unless_all_have_one() -> None:
    mixed = [BrokerRegistration(0, 1, {}, "a"), *brokers(3)[1:]]
    assert place(mixed, 2, 6, Seed(0, 0)) == place(brokers(3), 2, 6, Seed(0, 0))


def test_the_dead_come_last_and_only_if_needed() -> None:
    some_dead = [*brokers(2), fenced(2), fenced(3)]
    assert all(set(replicas) <= {0, 1} for replicas in place(some_dead, 2, 6, Seed(5, 5)))
    placed = place(some_dead, 3, 6, Seed(0, 0))
    assert all(set(replicas[:2]) == {0, 1} and replicas[2] in (2, 3) for replicas in placed)
    assert {replicas[2] for replicas in placed} == {2, 3}


@pytest.mark.parametrize(
    ("known", "factor", "reason"),
    [
        (brokers(3), 4, "only 3 broker(s) are registered"),
        ([fenced(0)], 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_too_few_brokers(known: list[BrokerRegistration], factor: int, reason: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        place(known, factor, 1, Seed(0, 0))
    assert refused.value.code == INVALID_REPLICATION_FACTOR
    assert reason in refused.value.message


def test_more_partitions_go_on_where_the_others_stopped() -> None:
    all_at_once = place(brokers(3), 1, 9, Seed(2, 0))
    seed = seed_to_continue(brokers(3), all_at_once[0][0])
    assert place(brokers(3), 1, 5, seed, first_partition=4) == all_at_once[4:]
    assert seed_to_continue(brokers(3), 77) == Seed(0, 0)
    assert seed_to_continue([], 0) == Seed(0, 0)


@given(
    count=st.integers(1, 9),
    rack_count=st.integers(0, 4),
    factor=st.integers(1, 9),
    partitions=st.integers(1, 60),
    seed=st.integers(0, 2**128),
)
def test_even_and_apart(
    count: int, rack_count: int, factor: int, partitions: int, seed: int
) -> None:
    racks = [f"r{rack}" for rack in range(rack_count)]
    known = brokers(count, *racks)
    if factor > count:
        return
    placed = place(known, factor, partitions, Seed.of(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        if racks:
            used = {known[replica].rack for replica in replicas}
            assert len(used) == min(factor, rack_count, count)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(each, 0) for each in range(count)) <= 1
