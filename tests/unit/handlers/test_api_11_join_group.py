"""Goal: joins of every version; what each version calls differently.
Method: a real shard behind the handler.
"""

from __future__ import annotations

import pytest

from tests.unit.handlers.group_fakes import GroupServices


@pytest.mark.parametrize("version", range(10))
def test_a_join(version: int) -> None:
    services = GroupServices()
    first = services.join(version)
    if version >= 4:
        assert (first.error_code, first.generation_id) == (79, -1)
        assert first.protocol_name == (None if version >= 7 else "")
        first = services.join(version, member_id=first.member_id)
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert first.member_id.startswith("test-")
    assert [member.member_id for member in first.members] == [first.member_id]


def test_version_0_has_one_time_out() -> None:
    services = GroupServices()
    services.join(0, session_timeout_ms=700)
    (member,) = services.hosted.shard.groups["g"].members.values()  # type: ignore[attr-defined]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (700, 700)


@pytest.mark.parametrize("version", [0, 9])
def test_refusals(version: int) -> None:
    services = GroupServices()
    assert services.join(version, group_id="").error_code == 24
    assert services.join(version, member_id="forged").error_code == 25
    services.groups.refusal = 14
    refused = services.join(version, member_id="mine")
    assert (refused.error_code, refused.member_id) == (14, "mine")


def test_who_asked_is_known() -> None:
    services = GroupServices()
    services.join()
    (member,) = services.hosted.shard.groups["g"].members.values()  # type: ignore[attr-defined]
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")


def test_a_client_id_of_any_length() -> None:
    """Ids are made of it and have to fit into a string of the protocol."""
    services = GroupServices()
    joined = services.join(9, group_instance_id="é" * 16_000)
    assert joined.error_code == 0
    assert len(joined.member_id.encode()) <= 32_767
