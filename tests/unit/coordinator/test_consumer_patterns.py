"""Goal: a member that subscribes by a regular expression reads what matches it, now and later.
Method: members on virtual time; resolution in parts by a clock that is told to run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.errors import ProtocolError
from ottla.coordinator.subscription_pattern import (
    NAMES_BETWEEN_LOOKS,
    PATTERN_BYTES_MAX,
    TURN_MS_MAX,
    Resolution,
    compiled,
)
from ottla.protocol.error_codes import INVALID_REGULAR_EXPRESSION, NOT_ENOUGH_REPLICAS
from tests.unit.coordinator.consumer_world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.set_topics(apple=1, apricot=1, banana=2)
    yield world
    world.check_replay()


def join(world: World, member: str, pattern: str) -> None:
    world.join(member, subscribed_topic_regex=pattern)
    world.time.advance(0)


def test_it_is_resolved_after_the_join(world: World) -> None:
    answer = world.join("a", subscribed_topic_regex="ap.*")
    assert (answer["member_epoch"], world.told(answer)) == (1, {})
    world.time.advance(0)
    assert world.told(world.beat("a", 1)) == {"apple": [0], "apricot": [0]}


def test_the_whole_name_has_to_match(world: World) -> None:
    join(world, "a", "app")
    assert world.told(world.beat("a", 1)) is None
    assert world.group().patterns["app"].topics == frozenset()


def test_a_second_member_finds_it_resolved(world: World) -> None:
    join(world, "a", "ap.*")
    world.beat("a", 1)
    assert world.join("b", subscribed_topic_regex="ap.*")["member_epoch"] == 3
    assert world.told(world.beat("a", 2, owns={"apple": [0]})) == {"apple": [0]}
    assert world.told(world.beat("b", 3)) == {"apricot": [0]}


def test_another_expression_waits_for_its_turn(world: World) -> None:
    """At most every ten seconds: who changes its mind all the time must not keep us busy."""
    join(world, "a", "ap.*")
    world.beat("a", 1)
    join(world, "b", "b.*")
    world.time.advance(10_000)
    assert world.told(world.beat("b", 2)) is None
    world.time.advance(1)
    world.beat("b", 2)
    world.time.advance(0)
    assert world.told(world.beat("b", 2)) == {"banana": [0, 1]}


def test_new_topics_are_found(world: World) -> None:
    join(world, "a", "ap.*")
    world.beat("a", 1)
    world.set_topics(apple=1, apricot=1, banana=2, april=1)
    world.beat("a", 2)
    world.time.advance(0)
    assert world.group().epoch == 2, "not before ten seconds have passed"
    world.time.advance(10_001)
    world.beat("a", 2)
    world.time.advance(0)
    assert world.told(world.beat("a", 2)) == {"apple": [0], "apricot": [0], "april": [0]}


def test_topics_that_came_while_nobody_was_here_are_found(world: World) -> None:
    join(world, "a", "ap.*")
    world.beat("a", 1)
    world.set_topics(apple=1, apricot=1, banana=2, april=1)
    world.hosted.restart()
    world.time.advance(10_001)
    world.beat("a", 2)
    world.time.advance(0)
    assert "april" in world.group().patterns["ap.*"].topics


def test_topics_that_go_are_given_up_without_a_resolution(world: World) -> None:
    join(world, "a", "ap.*")
    world.beat("a", 1)
    world.set_topics(apple=1, banana=2)
    assert world.told(world.beat("a", 2, owns={"apple": [0]})) == {"apple": [0]}
    for _ in range(20):
        world.time.advance(30_000)
        world.beat("a", 3)
        world.time.advance(0)
    assert world.group().patterns["ap.*"].topics == {"apple", "apricot"}
    world.time.advance(1)
    world.beat("a", 3)
    world.time.advance(0)
    assert world.group().patterns["ap.*"].topics == {"apple"}, "once in a while they are looked at"


def test_a_look_at_new_topics_that_is_lost_is_taken_again(world: World) -> None:
    join(world, "a", "ap.*")
    world.beat("a", 1)
    world.set_topics(apple=1, apricot=1, banana=2, april=1)
    world.time.advance(10_001)
    world.beat("a", 2)
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    world.time.advance(0)
    world.hosted.partition.fail_code = 0
    world.beat("a", 2)
    world.time.advance(0)
    assert "april" in world.group().patterns["ap.*"].topics


def test_topics_that_come_while_names_are_tried_are_tried_later(world: World) -> None:
    world.join("a", subscribed_topic_regex="ap.*")
    world.set_topics(apple=1, apricot=1, banana=2, april=1)
    world.time.advance(0)
    world.beat("a", 1)
    assert "april" not in world.group().patterns["ap.*"].topics
    world.time.advance(10_001)
    world.beat("a", 2)
    world.time.advance(0)
    assert "april" in world.group().patterns["ap.*"].topics


def test_an_expression_that_is_gone_counts_no_longer(world: World) -> None:
    """Else a look at the topics after a restart would find a difference that is none."""
    join(world, "a", "ap.*")
    world.beat("a", 1)
    world.beat("a", 2, subscribed_topic_names=["banana"], subscribed_topic_regex="")
    world.beat("a", 2, owns={})
    epoch = world.group().epoch
    world.hosted.restart()
    world.beat("a", epoch)
    assert world.group().epoch == epoch
    world.join("b", "banana")
    world.join("c", subscribed_topic_regex="b.*")
    world.time.advance(0)
    world.leave("c")
    assert world.group().patterns == {}
    epoch = world.group().epoch
    world.hosted.restart()
    world.beat("b", epoch - 2)
    assert world.group().epoch == epoch


def test_nothing_new_is_no_reason_to_look(world: World) -> None:
    join(world, "a", "ap.*")
    world.beat("a", 1)
    before = world.hosted.partition.log_end_offset
    world.time.advance(20_000)
    world.beat("a", 2)
    world.time.advance(0)
    assert world.hosted.partition.log_end_offset == before


def test_the_last_one_takes_its_expression_along(world: World) -> None:
    join(world, "a", "ap.*")
    join(world, "b", "ap.*")
    world.leave("a")
    assert set(world.group().patterns) == {"ap.*"}
    world.join("c", "banana")
    world.leave("b")
    assert world.group().patterns == {}


def test_names_and_an_expression_together(world: World) -> None:
    world.join("a", "banana", subscribed_topic_regex="ap.*")
    world.time.advance(0)
    held = {"apple": [0], "apricot": [0], "banana": [0, 1]}
    assert world.told(world.beat("a", 2)) == held
    assert world.hosted.shard.groups["g"].is_subscribed_to("apple")
    assert world.hosted.shard.groups["g"].is_subscribed_to("banana")
    assert not world.hosted.shard.groups["g"].is_subscribed_to("cherry")


def test_a_result_that_is_lost_is_looked_for_again(world: World) -> None:
    world.join("a", subscribed_topic_regex="ap.*")
    world.hosted.partition.fail_code = NOT_ENOUGH_REPLICAS
    world.time.advance(0)
    world.hosted.partition.fail_code = 0
    world.beat("a", 1)
    world.time.advance(0)
    assert world.told(world.beat("a", 1)) == {"apple": [0], "apricot": [0]}


def test_who_left_meanwhile_gets_nothing(world: World) -> None:
    world.join("a", subscribed_topic_regex="ap.*")
    world.leave("a")
    world.time.advance(0)
    assert world.group().patterns == {}


def test_an_expression_of_another_broker_that_is_none_here_matches_nothing() -> None:
    world = World()
    resolution = Resolution(["(", "t"], ["t", "u"], 0)
    assert resolution.go_on(world.time)
    assert resolution.result() == {"(": frozenset(), "t": frozenset({"t"})}


class RunningClock:
    """Each look at it costs a millisecond."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def test_many_topics_are_tried_in_many_turns() -> None:
    names = [f"topic-{number}" for number in range(1000)]
    resolution = Resolution(["topic-.*5"], names, 0)
    clock = RunningClock()
    turns = 1
    while not resolution.go_on(clock):
        turns += 1
    assert turns == -(-1000 // (NAMES_BETWEEN_LOOKS * TURN_MS_MAX))
    assert resolution.result() == {
        "topic-.*5": frozenset(name for name in names if name.endswith("5"))
    }


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("[z-a]", "invalid character class range"),
        ("\\1", "invalid escape sequence"),
        ("(?<=a)b", "invalid named capture"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("a{2000}", "invalid repeat count"),
        ("*", "missing argument to repetition operator"),
        ("a\\", "trailing backslash at end of expression"),
    ],
)
def test_what_is_no_expression_is_told_in_kafkas_words(pattern: str, what: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        compiled(pattern)
    message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {what}."
    assert refused.value.message == message
    assert refused.value.code == INVALID_REGULAR_EXPRESSION


def test_an_expression_that_needs_too_much_is_none() -> None:
    assert PATTERN_BYTES_MAX < 2**20
    with pytest.raises(ProtocolError, match="pattern too large"):
        compiled(r"[\pL\pN]{300}")
