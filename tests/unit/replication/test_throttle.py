"""Goal: replicas that catch up copy no faster than they may, and no others are held back."""

from __future__ import annotations

from ottla.replication.throttle import Throttle


def a_throttle(rate: int | None = 1_000) -> Throttle:
    throttle = Throttle()
    throttle.set_rate(rate, now_ms=0)
    throttle.set_replicas({"all": ["*"], "some": ["0:1", "3:2"], "none": []})
    return throttle


def test_whom_it_holds_back() -> None:
    throttle = a_throttle()
    assert throttle.is_on
    assert throttle.applies("all", 7, 9)
    assert throttle.applies("some", 3, 2)
    assert not throttle.applies("some", 3, 1)
    assert not throttle.applies("none", 0, 1)
    assert not throttle.applies("other", 0, 1)


def test_without_a_rate_or_a_replica_it_is_off() -> None:
    assert not a_throttle(None).is_on
    throttle = a_throttle()
    throttle.set_replicas({})
    assert not throttle.is_on
    assert a_throttle(None).wait_ms(5) == 0


def test_what_names_nobody_holds_nobody_back() -> None:
    throttle = a_throttle()
    throttle.set_replicas({"empty": ["", "0:1", ""], "strange": ["x", "1:", "-1:1"]})
    assert throttle.applies("empty", 0, 1)
    assert not throttle.applies("strange", -1, 1)
    throttle.set_replicas({"nobody": [""]})
    assert not throttle.is_on


def test_it_tells_whether_it_has_changed() -> None:
    throttle = a_throttle()
    throttle.spend(5_000, now_ms=0)
    assert not throttle.set_rate(1_000, now_ms=0)
    assert not throttle.set_replicas({"all": ["*"], "some": ["3:2", "0:1"]})
    assert throttle.wait_ms(0) == 4_001
    assert throttle.set_replicas({"all": ["*"]})
    assert throttle.set_rate(2_000, now_ms=0)
    assert throttle.wait_ms(0) == 0
    assert throttle.set_rate(None, now_ms=0)
    assert not throttle.is_on


def test_the_budget_is_spent_and_fills_again() -> None:
    throttle = a_throttle()
    throttle.spend(600, now_ms=0)
    assert throttle.wait_ms(0) == 0
    throttle.spend(1_400, now_ms=0)
    assert throttle.wait_ms(0) == 1_001
    assert throttle.wait_ms(500) == 501
    assert throttle.wait_ms(1_001) == 0


def test_it_saves_no_more_than_a_second() -> None:
    throttle = a_throttle()
    throttle.spend(1_000, now_ms=3_600_000)
    assert throttle.wait_ms(3_600_000) == 1


def test_over_time_it_keeps_to_the_rate() -> None:
    throttle = a_throttle(100_000)
    sent = now_ms = 0
    while now_ms < 60_000:
        now_ms += throttle.wait_ms(now_ms) or 1
        if throttle.wait_ms(now_ms) == 0:
            throttle.spend(16_384, now_ms)
            sent += 16_384
    assert 0.95 < sent / 6_000_000 < 1.05


def test_a_new_rate_begins_with_a_full_budget() -> None:
    throttle = a_throttle()
    throttle.spend(1_000_000, now_ms=0)
    throttle.set_rate(2_000, now_ms=0)
    assert throttle.wait_ms(0) == 0
