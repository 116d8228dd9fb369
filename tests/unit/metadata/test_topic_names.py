"""Goal: a name that is accepted is safe as a directory and as a node; others are refused in words.
Method: each rule with a name on both sides of it; random texts against the definition.
"""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ProtocolError
from ottla.metadata import topic_names
from ottla.protocol.error_codes import INVALID_TOPIC_EXCEPTION

LEGAL = string.ascii_letters + string.digits + "._-"


@pytest.mark.parametrize("name", ["a", "...", "a.b", "A_b-9", "x" * 249, "__consumer_offsets"])
def test_accepted(name: str) -> None:
    topic_names.validate(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics"),
        ("../a", "contains one or more characters"),
        ("a b", "contains one or more characters"),
        ("a\n", "contains one or more characters"),
        ("é", "contains one or more characters"),
        ("\u0661", "contains one or more characters"),
        ("a\0", "contains one or more characters"),
    ],
)
def test_refused(name: str, reason: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        topic_names.validate(name)
    assert refused.value.code == INVALID_TOPIC_EXCEPTION
    assert reason in refused.value.message


@given(st.text(max_size=260))
def test_only_legal_names_pass(name: str) -> None:
    legal = 0 < len(name) <= 249 and name not in (".", "..") and set(name) <= set(LEGAL)
    try:
        topic_names.validate(name)
    except ProtocolError:
        assert not legal
    else:
        assert legal


def collides(name: str, *existing: str) -> str | None:
    try:
        topic_names.check_collision(name, existing)
    except ProtocolError as refused:
        assert refused.code == INVALID_TOPIC_EXCEPTION
        return refused.message
    return None


def test_names_that_metrics_write_alike_collide() -> None:
    assert collides("a.b", "a.b", "a_b") == "Topic 'a.b' collides with existing topic: a_b"
    assert collides("a.b_c.d", "a_b_c_d")
    assert collides("_x", ".x")
    assert collides("a.b", "a.b") is None
    assert collides("a.b", "ab", "a-b") is None
    assert collides("ab", "a_b") is None
    assert collides("a" + "." * 10, "a" + "_" * 10)


def test_a_name_of_dots_does_not_take_for_ever() -> None:
    assert collides("." * 249, "_" * 249) is None


@given(st.text("a._", min_size=1, max_size=7), st.text("a._", min_size=1, max_size=7))
def test_collision_by_definition(name: str, other: str) -> None:
    alike = name != other and name.replace(".", "_") == other.replace(".", "_")
    assert (collides(name, other) is not None) == alike
