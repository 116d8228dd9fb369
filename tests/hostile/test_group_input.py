"""What a client may send to a group, and more of it than anybody needs.

Which error code each mistake gets is compared with Kafka's in `tests/compat/test_groups_wire.py`;
here it is the broker's memory and the other groups that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.coordinator.member_memory import MEMORY_BYTES_MAX
from tests.compat.confluent import new_name
from tests.compat.group_wire import MEMBER_ID_REQUIRED, RANGE, GroupWire
from tests.compat.nodes import wait_until
from tests.hostile.conftest import LimitedNode
from tests.hostile.well_behaved import produce_and_read_back
from tests.patience import SECONDS_MAX

OK, NOT_AVAILABLE, GROUP_MAX_SIZE_REACHED = 0, 15, 81
METADATA_BYTES = 4 << 20
ASKED = 3000
GROUP_SIZE_MAX = 20
GROWTH_BYTES_MAX = 20 << 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LimitedNode]:
    """One that its groups may fill: others must not find it full."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.max.size": str(GROUP_SIZE_MAX),
        "max.connection.creation.rate": "1000000",
    }
    node = LimitedNode(tmp_path, settings)
    node.start()
    produce_and_read_back(node.bootstrap)
    GroupWire(node.bootstrap, new_name()).ready().socket.close()
    yield node
    produce_and_read_back(node.bootstrap)
    another_group_works(node)
    node.close()


def another_group_works(node: LimitedNode) -> None:
    with GroupWire(node.bootstrap, new_name()) as one:
        assert int(one.enter().error_code) == OK
        assert int(one.sync(assignments={one.member_id: b"all"}).error_code) == OK
        assert int(one.beat().error_code) == OK


def test_huge_metadata_of_many_members_is_bounded(node: LimitedNode) -> None:
    """Each in a group of its own, which nobody leaves."""
    before = node.resident_bytes()
    codes = []
    metadata = bytes(METADATA_BYTES)
    for _ in range(2 * MEMORY_BYTES_MAX // METADATA_BYTES):
        with GroupWire(node.bootstrap, new_name()) as one:
            codes.append(int(one.enter(3, protocols=((RANGE, metadata),)).error_code))
    assert set(codes) == {OK, NOT_AVAILABLE}
    assert codes[-1] == NOT_AVAILABLE
    # Some frames of that size are on their way besides, and freed memory comes back late.
    assert node.resident_bytes() - before < MEMORY_BYTES_MAX + 8 * METADATA_BYTES


def test_thousands_that_ask_for_a_member_id_and_never_come_back(node: LimitedNode) -> None:
    before = node.resident_bytes()
    with GroupWire(node.bootstrap, new_name()) as one:
        for _ in range(ASKED):
            assert int(one.join(member_id="").error_code) == MEMBER_ID_REQUIRED
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX


def test_a_group_takes_so_many_and_no_more(node: LimitedNode) -> None:
    group = new_name()
    with ExitStack() as connections:
        members = [connections.enter_context(GroupWire(node.bootstrap, group)) for _ in range(300)]
        leader, *others = members
        assert int(leader.enter(3).error_code) == OK
        assert int(leader.sync(assignments={}).error_code) == OK
        # They wait for the leader to join again.
        waiting = [one.send_join(3) for one in others[:GROUP_SIZE_MAX]]
        wait_until(
            lambda: len(leader.describe().members) > GROUP_SIZE_MAX, SECONDS_MAX, "all have come"
        )
        for one in others[GROUP_SIZE_MAX:]:
            assert int(one.join(3).error_code) == GROUP_MAX_SIZE_REACHED
        assert len(waiting) == GROUP_SIZE_MAX


def test_a_member_that_joins_and_never_syncs_holds_nobody_else_up(node: LimitedNode) -> None:
    with GroupWire(node.bootstrap, new_name()) as silent:
        assert int(silent.enter(3).error_code) == OK
        another_group_works(node)
        assert silent.describe().group_state == "CompletingRebalance"
