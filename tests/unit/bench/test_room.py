"""Goal: members of one process take turns as their answers come, and wait where they have nothing
to say. Method: members that count, a server in this process that sends answers back.
"""

from __future__ import annotations

from bench.members import Room
from bench.wire import frame
from ottla.protocol.api_keys import LIST_GROUPS
from tests.unit.bench.servers import serving

REQUEST = frame(LIST_GROUPS, 4, {"states_filter": []})


class Counting:
    """Asks twice at once, then rests until its heartbeat."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.heartbeats = 0
        self.under_way_max = self._under_way = 0

    def first_request(self) -> bytes:
        return self._ask()

    def heartbeat(self) -> bytes:
        self.heartbeats += 1
        return self._ask()

    def on_answer(self, answer: bytes) -> bytes | None:
        self._under_way -= 1
        self.answers.append(answer)
        return self._ask() if len(self.answers) < 2 else None

    def _ask(self) -> bytes:
        self._under_way += 1
        self.under_way_max = max(self.under_way_max, self._under_way)
        return REQUEST


def test_all_members_are_served_until_they_are_stable() -> None:
    large = bytes(200_000)  # more than one read takes
    members = [Counting() for _ in range(3)]
    with serving(lambda _: large) as bootstrap:
        room = Room(bootstrap, len(members))
        room.run(members, lambda: all(len(member.answers) >= 3 for member in members))
        again = [Counting() for _ in range(3)]
        room.run(again, lambda: all(len(member.answers) >= 1 for member in again))
        room.close()
    for member in members:
        assert set(member.answers) == {large}
        assert member.heartbeats >= 1
        assert member.under_way_max == 1
