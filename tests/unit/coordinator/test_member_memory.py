"""Goal: whoever joins with much, or many times, is refused before the broker suffers; others go on.
Method: the real shard under joins that nobody means, and an honest group beside them.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator import member_memory
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.shard import Caller
from sim.groups.hosted_shard import HostedShard

NOT_AVAILABLE = 15
MEMBER_ID_REQUIRED = 79


@pytest.fixture
def hosted(caplog: pytest.LogCaptureFixture) -> HostedShard:
    caplog.set_level(logging.ERROR, "ottla")
    return HostedShard(
        config=GroupConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100)
    )


def join(
    hosted: HostedShard,
    group: str,
    *,
    member_id: str = "",
    metadata: bytes = b"",
    version: int = 3,
    session_ms: int = 1000,
) -> Any:
    """The fields of the answer, or None while it waits."""
    request = SimpleNamespace(
        group_id=group,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[SimpleNamespace(name="range", metadata=metadata)],
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=1000,
    )
    caller = Caller("client", "/127.0.0.1", version)
    answer = hosted.host.write(lambda shard: shard.join_group(request, caller))
    hosted.time.advance(0)
    return answer.result() if answer.done else None


def test_huge_metadata_is_refused_and_small_metadata_is_not(hosted: HostedShard) -> None:
    mebibyte = bytes(1024 * 1024)
    codes = [join(hosted, f"greedy{n}", metadata=mebibyte * 8)["error_code"] for n in range(100)]
    assert codes[0] == 0, "one such member is nobody's harm"
    assert codes[-1] == NOT_AVAILABLE
    assert hosted.shard.context.memory.held < member_memory.MEMORY_BYTES_MAX
    assert join(hosted, "honest", metadata=bytes(100))["error_code"] == 0


def test_ids_that_nobody_uses_are_bounded_and_forgotten(
    hosted: HostedShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_memory, "MEMORY_BYTES_MAX", 4 * 1024 * 1024)
    codes = {join(hosted, f"g{n}", version=9)["error_code"] for n in range(3000)}
    assert codes == {MEMBER_ID_REQUIRED, NOT_AVAILABLE}
    assert hosted.shard.context.memory.held <= 4 * 1024 * 1024
    hosted.time.advance(1000)
    assert hosted.shard.context.memory.held == 0
    assert hosted.shard.groups == {}
    assert join(hosted, "honest", version=9)["error_code"] == MEMBER_ID_REQUIRED


def test_who_is_a_member_can_join_again_when_there_is_no_room(hosted: HostedShard) -> None:
    joined = join(hosted, "honest", metadata=bytes(100))
    hosted.shard.context.memory.held += member_memory.MEMORY_BYTES_MAX
    again = join(hosted, "honest", member_id=joined["member_id"], metadata=bytes(100))
    assert again["error_code"] == 0
    grown = join(hosted, "honest", member_id=joined["member_id"], metadata=bytes(101))
    assert grown["error_code"] == NOT_AVAILABLE


def test_thousands_of_members_are_one_group(hosted: HostedShard) -> None:
    first = join(hosted, "crowd")
    for _ in range(2000):
        join(hosted, "crowd")
    again = join(hosted, "crowd", member_id=first["member_id"])
    assert (again["generation_id"], len(again["members"])) == (2, 2001)
    hosted.time.advance(10_000)
    assert hosted.shard.context.memory.held == 0
