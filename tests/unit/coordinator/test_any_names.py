"""Goal: groups, members, instances and clients may be called anything; nothing is mixed up by it,
and no line of the log is spoiled.
Method: the life of a consumer group under names of any letters, with a reload of the log.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.shard import Caller
from ottla.protocol.error_codes import NONE
from tests.unit.coordinator.consumer_conversations import assignment
from tests.unit.coordinator.consumer_world import World

# Blank ids are refused, and names are UTF-8 on the wire.
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda s: s.strip())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names, names, names)
@example("g\n2024 INFO all is well", "m\x1b]0;title\x07", "\r\x9b2J")
@example("%s%d%(x)s", "{0}", "\\")
@example("群組", "成員", "ß")
@example("\u202eabc", "a\x00b", "\x7f")
def test_a_group_may_be_called_anything(
    caplog: pytest.LogCaptureFixture, group: str, first: str, second: str
) -> None:
    caplog.clear()
    caplog.set_level(logging.DEBUG, "ottla")
    second += "'"  # another one than the first
    first = first.rstrip("'")
    if not first.strip():
        return
    world = World()
    caller = Caller(second, f"/{first}", 1)
    world.join(first, "t", group_id=group, instance_id=second, caller=caller)
    epoch = world.join(second, "t", group_id=group, caller=caller)["member_epoch"]
    answer = world.beat(first, epoch - 1, group_id=group, instance_id=second)
    world.beat(first, epoch - 1, group_id=group, instance_id=second, owns=world.told(answer))
    assert world.told(world.beat(second, epoch, group_id=group)) == {"t": [2, 3]}
    assert world.commit(5, member=second, epoch=epoch, group_id=group) == NONE
    world.check_replay()

    world.hosted.restart()
    (described,) = world.hosted.shard.describe_consumer_groups([group])
    assert described["group_id"] == group
    assert {one["member_id"]: one["instance_id"] for one in described["members"]} == {
        first: second,
        second: None,
    }
    commit = world.hosted.shard.offsets.get(group, "t", 0)
    assert commit is not None

    world.time.advance(60_000)  # their sessions end
    found = world.hosted.shard.groups[group]
    assert isinstance(found, ConsumerGroup)
    assert not found.members
    check_lines(caplog)


def test_names_in_a_change_of_kind_do_not_spoil_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla")
    world = World()
    group = "g\n\x1b[2J"
    member: str = world.classic_join("", "t", group_id=group)["member_id"]
    world.classic_sync(member, 1, {member: assignment("t", 0)}, group_id=group)
    world.join("b\n", "t", group_id=group)
    world.classic_join("", "t", group_id=group, session_timeout_ms=1)
    world.leave("b\n", group_id=group)
    assert "from classic to consumer" in caplog.text
    assert "no join" in caplog.text
    assert "from consumer to classic" in caplog.text
    check_lines(caplog)


def check_lines(caplog: pytest.LogCaptureFixture) -> None:
    assert caplog.records
    for record in caplog.records:
        message = record.getMessage()
        assert message.isprintable(), message
