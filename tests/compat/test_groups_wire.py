"""Group APIs byte for byte: every version answers, every mistake gets the code that Kafka gives.

Calibrated on Apache Kafka 4.3.1 (OTTLA_COMPAT_NODE=kafka runs all of it there).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compat import confluent
from tests.compat.group_nodes import group_node, groups_at, topic  # noqa: F401
from tests.compat.group_wire import MEMBER_ID_REQUIRED, RANGE, GroupWire, schema, subscription
from tests.compat.nodes import wait_until
from tests.patience import SECONDS_MAX, SHORT_SESSION_MS

Member = Callable[..., GroupWire]

OK = 0


@pytest.fixture
def member(groups_at: str, topic: str) -> Iterator[Member]:  # noqa: F811
    """Makes connections; those without a name of their group share one."""
    shared = confluent.new_name("group")
    made: list[GroupWire] = []

    def make(group: str = shared) -> GroupWire:
        one = GroupWire(groups_at, group, topic)
        made.append(one)
        return one.ready() if len(made) == 1 else one

    yield make
    for one in made:
        one.socket.close()


def settle(one: GroupWire) -> None:
    """It joins a group that is empty, and is its stable leader."""
    assert int(one.enter().error_code) == OK
    assert int(one.sync(assignments={}).error_code) == OK


def knock(one: GroupWire, *args: Any, **options: Any) -> tuple[Any, int]:
    """Sends a join that has to wait for others, and comes back when the broker has got it."""
    with GroupWire("{}:{}".format(*one.socket.getpeername()), one.group) as witness:
        before = len(witness.describe().members)
        sent = one.send_join(*args, **options)
        wait_until(
            lambda: len(witness.describe().members) > before, SECONDS_MAX, "the join is seen"
        )
    return sent


# -------------------------------------------------------------------------------------- versions
@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(member: Member, version: int) -> None:
    found = member().find(version)
    assert int(found.error_code) == OK
    assert (found.host, found.port) == member().socket.getpeername()
    assert found.node_id >= 0


@pytest.mark.parametrize("version", range(10))
def test_join_group(member: Member, version: int) -> None:
    one = member()
    first = one.join(version)
    assert int(first.error_code) == (MEMBER_ID_REQUIRED if version >= 4 else OK)
    assert one.member_id.startswith("ottla-compat-")
    answer = one.join(version) if version >= 4 else first
    assert (int(answer.error_code), answer.generation_id) == (OK, 1)
    assert answer.leader == answer.member_id == one.member_id
    assert answer.protocol_name == RANGE
    (described,) = answer.members
    assert described.member_id == one.member_id
    assert described.metadata == subscription(one.topic)


@pytest.mark.parametrize("version", range(6))
def test_sync_group(member: Member, version: int) -> None:
    one = member()
    one.enter()
    assert one.sync(version, assignments={one.member_id: b"all"}).assignment == b"all"
    again = one.sync(version)
    assert (int(again.error_code), again.assignment) == (OK, b"all")


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(member: Member, version: int) -> None:
    one = member()
    one.enter()
    # A member that waits for its assignment is not told to join again (4.x; older ones said 27).
    assert int(one.beat(version).error_code) == OK
    one.sync(assignments={})
    assert int(one.beat(version).error_code) == OK
    assert int(one.beat(version, generation=7).error_code) == 22
    one.member_id = "nobody"
    assert int(one.beat(version).error_code) == 25


@pytest.mark.parametrize("version", range(6))
def test_leave_group(member: Member, version: int) -> None:
    one = member()
    one.enter()
    left = one.leave(version)
    codes = [int(two.error_code) for two in left.members] if version >= 3 else []
    assert (int(left.error_code), codes) == (OK, [OK] if version >= 3 else [])
    again = one.leave(version)
    if version >= 3:
        assert [int(two.error_code) for two in again.members] == [25]
    else:
        assert int(again.error_code) == 25
    found = one.listed()  # it may be forgotten by now
    assert found is None or found.group_state == "Empty"


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit(member: Member, version: int) -> None:
    one = member()
    topic_id = topic_id_of(one)
    assert one.commit(5, version, topic_id=topic_id, metadata="note", leader_epoch=0) == OK
    (found,) = one.fetch_offsets().topics
    (partition,) = found.partitions
    assert (partition.committed_offset, partition.metadata) == (5, "note")
    assert partition.committed_leader_epoch == (0 if version >= 6 else -1)
    unknown = one.commit(5, version, topic="nowhere", topic_id=uuid.uuid4())
    assert unknown == (100 if version >= 10 else 3)
    assert one.commit(5, version, partition=99, topic_id=topic_id) == 3
    assert one.commit(5, version, topic_id=topic_id, metadata="x" * 4097) == 12
    assert one.commit(5, version, topic_id=topic_id, metadata="é" * 4096) == OK
    # Letters are counted as Java does: one beyond the first 65,536 is two.
    assert one.commit(5, version, topic_id=topic_id, metadata="😀" * 2048) == OK
    assert one.commit(5, version, topic_id=topic_id, metadata="😀" * 2048 + "x") == 12


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch(member: Member, version: int) -> None:
    one = member()
    topic_id = topic_id_of(one)
    asked = one.fetch_offsets(version, partitions=(0, 1), topic_id=topic_id)
    (found,) = asked.topics
    assert [(p.partition_index, p.committed_offset) for p in found.partitions] == [(0, -1), (1, -1)]
    one.commit(7, metadata="note")
    (found,) = one.fetch_offsets(version, partitions=(0, 1), topic_id=topic_id).topics
    assert [(p.committed_offset, p.metadata, int(p.error_code)) for p in found.partitions] == [
        (7, "note", OK),
        (-1, "", OK),
    ]
    if version >= 10:
        assert found.topic_id == topic_id
        (lost,) = one.fetch_offsets(version, partitions=(0,), topic_id=uuid.uuid4()).topics
        assert [int(p.error_code) for p in lost.partitions] == [100]
    if version >= 2:
        (found,) = one.fetch_offsets(version).topics
        assert [p.committed_offset for p in found.partitions] == [7]


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(member: Member, version: int) -> None:
    one = member()
    unknown = one.describe(version)
    assert unknown.group_state == "Dead"
    assert int(unknown.error_code) == (69 if version >= 6 else OK)
    one.enter()
    assert one.describe(version).group_state == "CompletingRebalance"
    one.sync(assignments={one.member_id: b"all"})
    found = one.describe(version)
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        "consumer",
        RANGE,
    )
    (described,) = found.members
    assert described.client_id == "ottla-compat"
    assert described.client_host == "/127.0.0.1"
    assert described.member_assignment == b"all"
    assert described.member_metadata == subscription(one.topic)


@pytest.mark.parametrize("version", range(6))
def test_list_groups(member: Member, version: int) -> None:
    one = member()
    assert one.listed(version) is None
    one.enter()
    found = one.listed(version)
    assert found.protocol_type == "consumer"
    if version >= 4:
        assert found.group_state == "CompletingRebalance"
        assert one.listed(version, states=("sTable",)) is None
        assert one.listed(version, states=("Stable", "completingRebalance")) is not None
    if version >= 5:
        assert found.group_type == "classic"
        assert one.listed(version, types=("consumer",)) is None
        assert one.listed(version, types=("Classic",)) is not None
        assert one.listed(version, types=("nonsense",)) is None


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(member: Member, version: int) -> None:
    one = member()
    assert one.delete_group(version) == 69
    one.enter()
    assert one.delete_group(version) == 68
    one.sync(assignments={})
    one.commit(5)
    one.leave()
    assert one.delete_group(version) == OK
    assert one.delete_group(version) == 69
    assert one.listed() is None
    assert one.fetch_offsets().topics == ()


def test_offset_delete(member: Member, groups_at: str) -> None:  # noqa: F811
    one = member()
    assert one.delete_offset() == (69, [])
    other = confluent.create_topic(groups_at)
    settle(one)
    one.commit(5)
    one.commit(6, topic=other)
    assert one.delete_offset() == (OK, [86])
    assert one.delete_offset(99) == (OK, [3])
    assert one.delete_offset(topic=other) == (OK, [OK])
    assert [found.name for found in one.fetch_offsets().topics] == [one.topic]
    one.leave()
    assert one.delete_offset() == (OK, [OK])
    assert one.fetch_offsets().topics == ()


def topic_id_of(one: GroupWire) -> uuid.UUID:
    part = schema("metadata", 12)
    asked = part.MetadataRequestTopic(name=one.topic, topic_id=None)
    request = part.MetadataRequest(
        topics=(asked,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    found: uuid.UUID = one.call(request).topics[0].topic_id
    return found


# -------------------------------------------------------------------------------------- mistakes
def test_what_a_join_is_refused_for(member: Member) -> None:
    one = member()
    assert int(one.join(member_id="forged").error_code) == 25
    assert int(one.join(session_ms=499).error_code) == 26
    assert int(one.join(session_ms=1_800_001).error_code) == 26
    assert int(one.join(protocols=()).error_code) == 23
    assert int(one.join(protocol_type="").error_code) == 23
    settle(one)
    two = member()
    assert int(two.join(protocols=(("other", b""),)).error_code) == 23
    assert int(two.join(protocol_type="connect").error_code) == 23
    assert int(two.join(member_id="forged").error_code) == 25
    nameless = member("")
    assert int(nameless.join().error_code) == 24
    assert int(nameless.sync().error_code) == 24
    assert int(nameless.beat().error_code) == 24
    assert int(nameless.leave().error_code) == 24
    assert nameless.delete_offset() == (24, [])


def test_what_a_sync_is_refused_for(member: Member) -> None:
    one = member()
    assert int(one.sync().error_code) == 25
    one.enter()
    assert int(one.sync(protocol_name="sticky").error_code) == 23
    assert int(one.sync(protocol_type="connect").error_code) == 23
    assert int(one.sync(protocol_type=None).error_code) == 23
    assert int(one.sync(generation=2).error_code) == 22
    two = member()
    waiting = knock(two, 3)
    assert int(one.sync(assignments={}).error_code) == 27
    one.join()
    two.end_join(waiting)


def test_who_may_commit(member: Member) -> None:
    one = member()
    assert one.commit(1, 8, generation=5, member_id="m") == 22
    assert one.commit(1, 9, generation=5, member_id="m") == 69
    assert one.commit(1, 8, generation=-1, member_id="m") == OK
    assert one.commit(-1, 8) == OK
    one.enter()
    assert one.commit(1) == 27
    one.sync(assignments={})
    assert one.commit(1) == OK
    assert one.commit(1, generation=-1, member_id="") == 25
    assert one.commit(1, generation=-1) == 22
    assert one.commit(1, generation=9) == 22
    assert one.commit(1, member_id="forged") == 25
    assert one.commit(1, instance_id="forged") == 25
    two = member()
    knock(two, 3)
    assert one.describe().group_state == "PreparingRebalance"
    assert one.commit(2) == OK


def test_ids_of_any_letters(member: Member) -> None:
    member()
    for name in ("a\nb\x00c", "\N{PILE OF POO}", "x" * 1000, " "):
        one = member(confluent.new_name() + name)
        settle(one)
        assert one.commit(3) == OK
        assert one.listed().group_id == one.group
        assert one.fetch_offsets().topics[0].partitions[0].committed_offset == 3


def test_metadata_that_no_record_can_hold(member: Member) -> None:
    """Kept is what a member subscribes to, by the record of its group, which has its limit."""
    one, other = member(), member(confluent.new_name())
    large = ((RANGE, bytes(2_000_000)),)
    assert int(one.enter(protocols=large).error_code) == OK
    assert int(one.sync(assignments={}).error_code) == -1
    assert one.describe().group_state == "PreparingRebalance"
    settle(other)
    assert other.commit(3) == OK
    assert int(one.leave().members[0].error_code) == OK
    settle(member())


def test_an_assignment_that_no_record_can_hold(member: Member) -> None:
    one = member()
    one.enter()
    assert int(one.sync(assignments={one.member_id: bytes(2_000_000)}).error_code) == -1
    assert int(one.enter().error_code) == OK
    assert int(one.sync(assignments={one.member_id: b"small"}).error_code) == OK


def test_assignments_for_who_is_not_in_the_group(member: Member) -> None:
    one = member()
    one.enter()
    strangers = {f"forged {number}": b"x" for number in range(1000)}
    answer = one.sync(assignments={one.member_id: b"mine", **strangers})
    assert (int(answer.error_code), answer.assignment) == (OK, b"mine")
    assert len(one.describe().members) == 1


def test_an_instance_with_an_id_that_was_given_to_a_dynamic_member(member: Member) -> None:
    one = member()
    assert int(one.join().error_code) == MEMBER_ID_REQUIRED
    assert int(one.join(instance_id="instance").error_code) == -1


# ---------------------------------------------------------------------------------------- static
def test_a_static_member_comes_back_without_a_rebalance(member: Member) -> None:
    one, two = member(), member()
    one.join(instance_id="one")
    one.sync(instance_id="one", assignments={one.member_id: b"all"})
    waiting = knock(two, instance_id="two")
    one.join(instance_id="one")
    two.end_join(waiting)
    asked = two.send_sync(instance_id="two")
    one.sync(instance_id="one", assignments={one.member_id: b"1", two.member_id: b"2"})
    assert two.receive(*asked).assignment == b"2"

    old_id = two.member_id
    back = two.join(instance_id="two", member_id="")
    assert (int(back.error_code), back.generation_id) == (OK, 2)
    assert back.member_id != old_id
    assert back.leader == one.member_id
    assert two.sync(instance_id="two").assignment == b"2"
    assert int(one.beat(instance_id="one").error_code) == OK

    ghost = member()
    ghost.member_id, ghost.generation = old_id, 2
    assert int(ghost.beat(instance_id="two").error_code) == 82
    assert int(ghost.sync(instance_id="two").error_code) == 82
    assert int(ghost.join(instance_id="two").error_code) == 82
    assert ghost.commit(1, instance_id="two") == 82
    assert [int(m.error_code) for m in ghost.leave(instance_id="two").members] == [82]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_comes_back(member: Member, version: int) -> None:
    one = member()
    one.join(instance_id="one")
    one.sync(instance_id="one", assignments={one.member_id: b"all"})
    old_id = one.member_id
    back = one.join(version, instance_id="one", member_id="")
    assert (int(back.error_code), back.generation_id) == (OK, 1)
    if version >= 9:
        assert (back.leader, back.skip_assignment) == (one.member_id, True)
        assert [m.group_instance_id for m in back.members] == ["one"]
    else:
        # It must not take itself for the leader: it would assign anew.
        assert (back.leader, back.members) == (old_id, ())
    assert one.sync(instance_id="one").assignment == b"all"


def test_a_static_member_is_removed_by_its_name(member: Member) -> None:
    one = member()
    one.join(instance_id="one")
    one.sync(instance_id="one", assignments={})
    admin = member()
    assert [int(m.error_code) for m in admin.leave(member_id="", instance_id="no").members] == [25]
    assert [int(m.error_code) for m in admin.leave(member_id="", instance_id="one").members] == [OK]
    assert int(one.beat(instance_id="one").error_code) == 25


def test_a_static_member_with_another_subscription(member: Member) -> None:
    """Kafka looks at the protocol only, so the group goes on with what it had."""
    one = member()
    one.join(instance_id="one")
    one.sync(instance_id="one", assignments={one.member_id: b"all"})
    other = ((RANGE, subscription("another")),)
    back = one.join(instance_id="one", member_id="", protocols=other)
    assert (int(back.error_code), back.generation_id) == (OK, 1)


# ------------------------------------------------------------------------------------- rebalance
def test_a_rebalance_waits_for_all_and_drops_who_stays_away(member: Member) -> None:
    one, two, three = member(), member(), member()
    one.enter(rebalance_ms=SHORT_SESSION_MS)
    one.sync(assignments={})
    waiting = knock(two, 3, rebalance_ms=SHORT_SESSION_MS)
    assert int(one.join(rebalance_ms=SHORT_SESSION_MS).error_code) == OK
    two.end_join(waiting)
    one.sync(assignments={})
    late = knock(three, 3, rebalance_ms=SHORT_SESSION_MS)
    again = two.send_join(rebalance_ms=SHORT_SESSION_MS)  # one stays away
    answer = three.end_join(late)
    assert answer.generation_id == 3
    assert two.end_join(again).generation_id == 3
    assert answer.leader in (two.member_id, three.member_id)
    assert int(one.beat().error_code) == 25


def test_a_member_that_is_not_heard_of_is_dropped(member: Member) -> None:
    one = member()
    one.enter(session_ms=500)
    one.sync(assignments={})
    wait_until(
        lambda: one.describe().group_state in ("Empty", "Dead"), SECONDS_MAX, "its session is over"
    )
    assert int(one.beat().error_code) == 25


def test_a_member_that_never_syncs_is_dropped(member: Member) -> None:
    one, two = member(), member()
    one.enter(rebalance_ms=SHORT_SESSION_MS)
    one.sync(assignments={})
    waiting = knock(two, 3, rebalance_ms=SHORT_SESSION_MS)
    one.join(rebalance_ms=SHORT_SESSION_MS)
    two.end_join(waiting)
    one.sync(assignments={})
    wait_until(lambda: int(one.beat().error_code) == 27, SECONDS_MAX, "two is dropped")
    assert int(two.beat().error_code) == 25


def test_followers_are_not_told_who_the_others_are(member: Member) -> None:
    one, two = member(), member()
    one.enter()
    waiting = knock(two, 3)
    leader = one.join()
    follower = two.end_join(waiting)
    assert {m.member_id for m in leader.members} == {one.member_id, two.member_id}
    assert follower.members == ()
    assert follower.leader == one.member_id


def test_the_protocol_that_most_members_like(member: Member) -> None:
    one, two, three = member(), member(), member()
    data = subscription(one.topic)
    one.enter(3, protocols=(("a", data), ("b", data), ("c", data)))
    second = knock(two, 3, protocols=(("c", data), ("b", data)))
    third = knock(three, 3, protocols=(("b", data), ("c", data)))
    assert one.join(3, protocols=(("a", data), ("b", data), ("c", data))).protocol_name == "b"
    assert two.end_join(second).protocol_name == "b"
    assert three.end_join(third).protocol_name == "b"


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ("range", "roundrobin", "range"),
        ("roundrobin", "range", "range"),
        ("sticky", "range", "sticky"),
        ("cooperative-sticky", "sticky", "sticky"),
    ],
)
def test_of_protocols_with_as_many_votes_the_same_is_taken_whoever_came_first(
    member: Member, first: str, second: str, chosen: str
) -> None:
    one, two = member(), member()
    data = subscription(one.topic)
    liked = ((first, data), (second, data))
    one.enter(3, protocols=liked)
    waiting = knock(two, 3, protocols=liked[::-1])
    assert one.join(3, protocols=liked).protocol_name == chosen
    assert two.end_join(waiting).protocol_name == chosen
