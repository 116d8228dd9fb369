"""Goal: a tied vote ends as with Kafka, whoever joined first.
Method: a group and its members alone; the outcomes were seen with Kafka 4.3.1.
"""

from __future__ import annotations

import pytest

from ottla.coordinator.classic_group import HASHED_BYTES_MAX, ClassicGroup, ClassicMember
from ottla.coordinator.member_memory import MemberMemory


def chosen(*likes: tuple[str, ...]) -> str:
    group = ClassicGroup("g", 0, MemberMemory())
    for number, names in enumerate(likes):
        protocols = tuple((name, b"") for name in names)
        group.add(ClassicMember(f"m-{number}", None, "c", "/h", 1000, 1000, protocols))
    return group.select_protocol()


@pytest.mark.parametrize(
    ("taken", "other"),
    [
        ("range", "roundrobin"),
        ("range", "cooperative-sticky"),
        ("sticky", "range"),
        ("sticky", "cooperative-sticky"),
        ("roundrobin", "cooperative-sticky"),
        ("range", "Ünï"),
        ("Ünï", "cooperative-sticky"),
    ],
)
def test_of_two_with_as_many_votes_the_names_decide(taken: str, other: str) -> None:
    assert chosen((taken, other), (other, taken)) == taken
    assert chosen((other, taken), (taken, other)) == taken


def test_votes_count_more_than_names() -> None:
    liked = ("roundrobin", "range")
    assert chosen(liked, liked, liked[::-1]) == "roundrobin"


def test_a_name_of_any_length_and_letters_has_its_place() -> None:
    long, odd = "a" * HASHED_BYTES_MAX, "\ud800"
    assert chosen((long, "cooperative-sticky"), ("cooperative-sticky", long)) != long
    assert chosen((odd, long), (long, odd)) == odd
