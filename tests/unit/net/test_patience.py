"""Who waits for what does not come is read from after two ticks at most; nobody else pays."""

from __future__ import annotations

from collections.abc import Callable

from ottla.net.patience import Patience


class Peer:
    def __init__(self, keeps_waiting: bool = False) -> None:
        self.reads = self.late = 0
        self.waits = True
        self.keeps_waiting = keeps_waiting

    def is_gathered(self) -> bool:
        return self.waits

    def read_late(self) -> None:
        self.late += 1
        self.reads += 1
        self.waits = self.keeps_waiting


class Ticks:
    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.patience = Patience(lambda _, callback: self.due.append(callback), 0.002)

    def tick(self) -> None:
        called, self.due = self.due, []
        assert len(called) <= 1, "one timer for all"
        for callback in called:
            callback()


def test_who_was_not_read_from_since_the_last_tick_is_read_from() -> None:
    ticks, quiet, busy = Ticks(), Peer(), Peer()
    ticks.patience.watch(quiet)
    ticks.patience.watch(busy)
    busy.reads += 1
    ticks.tick()
    assert (quiet.late, busy.late) == (1, 0)
    ticks.tick()
    assert (quiet.late, busy.late) == (1, 1)


def test_there_is_no_timer_where_nobody_waits() -> None:
    ticks, peer = Ticks(), Peer()
    assert not ticks.due
    ticks.patience.watch(peer)
    ticks.tick()
    assert not ticks.due
    peer.waits = True
    ticks.patience.watch(peer)
    ticks.tick()
    assert peer.late == 2


def test_who_waits_again_after_it_is_watched_on() -> None:
    ticks, peer = Ticks(), Peer(keeps_waiting=True)
    ticks.patience.watch(peer)
    for _ in range(3):
        ticks.tick()
    assert peer.late == 3


def test_who_no_longer_waits_is_left_alone() -> None:
    ticks, peer = Ticks(), Peer()
    ticks.patience.watch(peer)
    peer.waits = False
    ticks.tick()
    assert (peer.late, ticks.due) == (0, [])


def test_to_be_watched_twice_does_not_put_it_off() -> None:
    ticks, peer = Ticks(), Peer()
    ticks.patience.watch(peer)
    ticks.patience.watch(peer)
    ticks.tick()
    assert peer.late == 1
