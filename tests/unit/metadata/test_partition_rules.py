"""Goal: whatever happens to a partition, who leads it has everything that was committed, unless
somebody allowed that to be lost.
Method: each rule alone; then random histories over a model that knows which replica has which
record, with the rules deciding about every change.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.image import PartitionState
from ottla.metadata.partition_rules import PartitionChange, effective_min_in_sync

ALL = frozenset({1, 2, 3})


def changed(
    state: PartitionState, *live: int, min_in_sync: int = 2, **wanted: object
) -> PartitionState:
    change = PartitionChange(state, lambda broker: broker in live, min_in_sync)
    for name, value in wanted.items():
        setattr(change, name, value)
    return change.built()


def led_by(
    leader: int,
    *in_sync: int,
    eligible: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
) -> PartitionState:
    return PartitionState(leader, 5, (1, 2, 3), in_sync, eligible=eligible, last_known=last_known)


def test_nothing_is_changed_for_nothing() -> None:
    state = led_by(2, 1, 2, 3)
    assert changed(state, 1, 2, 3) == state
    waiting = led_by(-1, 1, last_known=(1,))
    assert changed(waiting, 2, 3) == waiting
    assert changed(waiting, 2, 3, min_in_sync=1) == waiting


def test_the_first_live_replica_that_is_in_sync_leads() -> None:
    state = led_by(1, 1, 3, 2)
    assert changed(state, 2, 3, leaving={1}) == replace(
        state, leader=2, leader_epoch=6, in_sync=(3, 2)
    )
    assert changed(state, 3, leaving={1, 2}) == replace(
        state, leader=3, leader_epoch=6, in_sync=(3,), eligible=(1, 2)
    )


def test_a_leader_stays_while_it_can() -> None:
    state = led_by(3, 1, 2, 3)
    assert changed(state, 1, 2, 3, leaving={1}).leader == 3
    assert changed(state, 1, 2, 3, leaving={1}).leader_epoch == 5


def test_a_leader_that_stops_may_still_change_its_in_sync_set() -> None:
    assert changed(led_by(1, 1, 2, 3), 2, 3, in_sync=(1, 2)) == led_by(1, 1, 2)


def test_the_preferred_leader_comes_back_if_it_may() -> None:
    state = led_by(2, 1, 2, 3)
    assert changed(state, 1, 2, 3, prefer_first=True) == replace(state, leader=1, leader_epoch=6)
    assert changed(state, 2, 3, prefer_first=True) == state
    assert changed(led_by(2, 2, 3), 1, 2, 3, prefer_first=True) == led_by(2, 2, 3)


def test_who_is_being_removed_leads_only_if_nobody_else_can() -> None:
    state = PartitionState(3, 5, (2, 1), (1, 2), removing=(1,))
    assert changed(state, 1, 2).leader == 2
    assert changed(state, 1).leader == 1


def test_who_is_not_in_sync_does_not_lead() -> None:
    state = led_by(1, 1)
    assert changed(state, 2, 3, leaving={1}) == replace(
        state, leader=-1, leader_epoch=6, last_known=(1,)
    )


def test_the_last_member_stays_and_leads_again() -> None:
    dead = changed(led_by(1, 1), leaving={1})
    assert (dead.leader, dead.in_sync) == (-1, (1,))
    back = changed(dead, 1)
    assert (back.leader, back.leader_epoch, back.in_sync) == (1, 7, (1,))


def test_who_dies_together_stays_together() -> None:
    dead = changed(led_by(2, 1, 2), leaving=ALL, min_in_sync=1)
    assert (dead.leader, dead.in_sync) == (-1, (1, 2)), "both have everything"
    assert changed(dead, 1, leaving={2, 3}).leader == 1


def test_the_leader_is_the_last_of_those_who_may_have_lost_records() -> None:
    state = led_by(2, 1, 2, 3)
    assert changed(state, leaving=ALL, unknowing=ALL).in_sync == (2,)
    assert changed(state, leaving=ALL, unknowing={1, 2}).in_sync == (3,)


def test_who_leaves_a_set_that_is_too_small_then_is_eligible() -> None:
    assert changed(led_by(1, 1, 2, 3), 1, leaving={3}).eligible == ()
    small = changed(led_by(1, 1, 2), 1, leaving={2})
    assert (small.in_sync, small.eligible) == ((1,), (2,))
    assert changed(small, 1, 2, in_sync=(1, 2)).eligible == ()
    assert changed(led_by(1, 1, 2), 1, leaving={2}, min_in_sync=1).eligible == ()


def test_the_number_of_replicas_caps_the_minimum() -> None:
    assert effective_min_in_sync(5, 3) == 3
    state = PartitionState(1, 5, (1, 2), (1, 2))
    assert changed(state, 1, 2, min_in_sync=9).eligible == ()
    assert changed(state, 1, leaving={2}, min_in_sync=9).eligible == (2,)


def test_the_eligible_lead_when_nobody_in_sync_can() -> None:
    state = led_by(-1, 1, eligible=(3, 2), last_known=(1,))
    elected = changed(state, 2, 3)
    assert (elected.leader, elected.leader_epoch, elected.in_sync) == (2, 6, (2,))
    assert elected.eligible == (1, 3), "who was in sync has everything too"


def test_who_may_have_lost_records_leaves_everything() -> None:
    state = led_by(1, 1, 2, 3)
    without = changed(state, 1, 2, 3, unknowing={1})
    assert (without.leader, without.in_sync, without.eligible) == (2, (2, 3), ())
    small = changed(led_by(1, 1, eligible=(2, 3)), 1, 3, unknowing={1, 2})
    assert (small.leader, small.in_sync, small.eligible) == (3, (3,), ())


def test_one_of_the_eligible_takes_over_from_who_may_have_lost_records() -> None:
    state = led_by(1, 1, eligible=(2, 3))
    taken = changed(state, 2, 3, unknowing={1}, leaving={1})
    assert (taken.leader, taken.in_sync, taken.eligible) == (2, (2,), (3,))
    taken = changed(state, 3, unknowing={1}, leaving={1, 2})
    assert (taken.leader, taken.in_sync, taken.eligible) == (3, (3,), (2,))


def test_who_may_have_lost_records_waits_for_the_eligible() -> None:
    state = led_by(-1, 1, eligible=(2,), last_known=(1,))
    waiting = changed(state, 1, unknowing={1})
    assert (waiting.leader, waiting.in_sync, waiting.eligible) == (-1, (2,), ())
    assert changed(waiting, 1, 2).leader == 2


def test_the_last_one_who_may_know_anything_stays() -> None:
    state = led_by(-1, 1, last_known=(1,))
    assert changed(state, 1, unknowing={1}) == replace(
        state, leader=1, leader_epoch=6, unclean_epoch=6
    )


def test_an_unclean_election_takes_the_last_leader_then_anybody() -> None:
    state = led_by(-1, 1, eligible=(1,), last_known=(9, 3))
    assert changed(state, 2, 3).leader == -1
    elected = changed(state, 2, 3, unclean=True)
    assert (elected.leader, elected.leader_epoch, elected.in_sync) == (3, 6, (3,))
    assert (elected.eligible, elected.last_known) == ((), (9, 3))
    assert elected.unclean_epoch == 6, "others may have to cut off what was committed"
    assert changed(state, 2, unclean=True).leader == 2
    doubtful = led_by(-1, 1, eligible=(2,))
    assert changed(doubtful, 3, unclean=True).eligible == (), "what they have may be cut off"
    assert changed(state, 9, unclean=True).leader == -1


def test_an_unclean_election_takes_who_is_being_added_last() -> None:
    """It may have nothing yet; during a move the old ones stand behind it in the list."""
    moving = replace(led_by(-1, 1), replicas=(4, 1, 2), adding=(4,), removing=(1, 2))
    assert changed(moving, 4, 2, unclean=True).leader == 2
    assert changed(moving, 4, unclean=True).leader == 4


def test_an_unclean_election_is_clean_where_it_can_be() -> None:
    clean = changed(led_by(-1, 2), 1, 2, unclean=True)
    assert (clean.leader, clean.unclean_epoch) == (2, -1)
    assert changed(led_by(-1, 2, eligible=(3,)), 1, 3, unclean=True).in_sync == (3,)


def test_who_led_last_is_remembered_until_enough_are_in_sync() -> None:
    dead = changed(led_by(1, 1, eligible=(2,)), leaving={1})
    assert dead.last_known == (1,)
    led = changed(dead, 2)
    assert led.last_known == (1,)
    assert changed(led, 2, 3, in_sync=(2, 3)).last_known == ()


def test_a_new_epoch_without_a_new_leader() -> None:
    assert changed(led_by(1, 1, 2), 1, 2, new_epoch=True).leader_epoch == 6


# --------------------------------------------------------------------------------------- histories
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["die", "lose power", "come", "commit", "shrink", "join", "prefer"]),
        st.integers(1, 3),
    ),
    max_size=40,
)


class World:
    """Which replica has how many records, and how many of them were ever acknowledged."""

    def __init__(self, min_in_sync: int) -> None:
        self.min_in_sync = min_in_sync
        self.state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
        self.live = {1, 2, 3}
        self.unclean: set[int] = set()
        self.lost_power: set[int] = set()
        self.committed = 0
        self.has = dict.fromkeys(ALL, 0)

    def decide(self, **wanted: object) -> None:
        before = self.state
        change = PartitionChange(before, self.live.__contains__, self.min_in_sync)
        change.leaving = set(before.replicas) - self.live
        change.unknowing = frozenset(self.unclean)
        for name, value in wanted.items():
            setattr(change, name, value)
        self.state = state = change.built()
        assert state.in_sync
        assert set(state.in_sync) <= set(state.replicas)
        assert state.leader == -1 or state.leader in state.in_sync
        assert state.leader_epoch - before.leader_epoch == (state.leader != before.leader)
        assert not set(state.eligible) & set(state.in_sync)
        if state.leader != before.leader:
            for replica in self.has:
                self.has[replica] = min(self.has[replica], self.has.get(state.leader, 99))

    def is_enough(self) -> bool:
        return len(self.state.in_sync) >= self.min_in_sync

    def who_must_know(self) -> set[int]:
        """Who was told to be in sync or eligible, and has not lost its disk since."""
        members = {*self.state.in_sync, *self.state.eligible}
        return {replica for replica in members if self.has[replica] >= self.committed}

    def happen(self, what: str, who: int) -> None:
        state, leads = self.state, self.state.leader in self.live
        if what == "die":
            self.live.discard(who)
            self.decide()
        elif what == "lose power":
            self.has[who] = 0
            self.lost_power.add(who)
            self.live.discard(who)
            self.decide()
        elif what == "come":
            self.live.add(who)
            self.unclean = self.lost_power & self.live
            self.decide()
            self.lost_power -= self.unclean
            self.unclean = set()
        elif what == "commit" and leads and self.is_enough() and set(state.in_sync) <= self.live:
            self.committed = max(self.has[replica] for replica in state.in_sync) + 1
            for replica in state.in_sync:
                self.has[replica] = self.committed
        elif what == "shrink" and leads and who in state.in_sync and who != state.leader:
            self.decide(in_sync=tuple(r for r in state.in_sync if r != who))
        elif what == "join" and leads and who in self.live - set(state.in_sync):
            self.has[who] = self.has[state.leader]
            self.decide(in_sync=(*state.in_sync, who))
        elif what == "prefer":
            self.decide(prefer_first=True)


@settings(max_examples=400)
@given(st.integers(1, 3), EVENTS)
def test_who_leads_has_everything_that_was_committed(
    min_in_sync: int, events: list[tuple[str, int]]
) -> None:
    world = World(min_in_sync)
    for what, who in events:
        # What is promised is for as long as one of those who must know keeps its disk.
        if what == "lose power" and world.who_must_know() <= {who}:
            continue
        world.happen(what, who)
        leader = world.state.leader
        assert leader == -1 or world.has[leader] >= world.committed, (what, who, world.state)


@pytest.mark.parametrize("min_in_sync", [1, 2, 3])
def test_all_killed_at_once_are_all_as_good_as_before(min_in_sync: int) -> None:
    world = World(min_in_sync)
    world.happen("commit", 1)
    for broker in ALL:
        world.happen("die", broker)
    assert world.state.leader == -1
    for broker in ALL:
        world.happen("come", broker)
    assert world.state.leader != -1
    assert world.has[world.state.leader] == world.committed
