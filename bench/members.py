"""Members of a group, all in one process and light: a connection each, one request at a time.

A member says what to send next after each answer; when it has nothing to say it waits for its
heartbeat. What the requests mean is the affair of the two protocols (clients/rebalance_*.py).
"""

from __future__ import annotations

import heapq
import select
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from bench.wire import AnswerError, Connection

HEARTBEAT_S = 0.1
STABLE_SECONDS_MAX = 60.0
_SIZE = struct.Struct(">i")
_RECEIVE_BYTES = 65536


class Member(Protocol):
    def first_request(self) -> bytes: ...
    def on_answer(self, answer: bytes) -> bytes | None:
        """The next request, or None: nothing to say before the next heartbeat."""

    def heartbeat(self) -> bytes: ...


class _Seat:
    """A member's connection and what has come of its next answer."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = Connection(bootstrap)
        self.descriptor = self.connection.socket.fileno()
        self.buffer = b""

    def answer(self) -> bytes | None:
        """A whole answer, once it is there."""
        more = self.connection.socket.recv(_RECEIVE_BYTES)
        if not more:
            raise AnswerError("the broker closed a member's connection")
        self.buffer += more
        if len(self.buffer) < _SIZE.size:
            return None
        end = _SIZE.size + _SIZE.unpack_from(self.buffer)[0]
        if len(self.buffer) < end:
            return None
        answer, self.buffer = self.buffer[_SIZE.size : end], self.buffer[end:]
        return answer


class Room:
    """Connections for so many members, open before anything is timed."""

    def __init__(self, bootstrap: str, places: int) -> None:
        self._poll = select.epoll()
        self._seats = [_Seat(bootstrap) for _ in range(places)]
        for seat in self._seats:
            self._poll.register(seat.descriptor, select.EPOLLIN)

    def close(self) -> None:
        self._poll.close()
        for seat in self._seats:
            seat.connection.close()

    def run(self, members: Sequence[Member], is_stable: Callable[[], bool]) -> float:
        """All members join at once; seconds until they are stable. Each must have a seat."""
        begin = time.perf_counter()
        taken = {
            seat.descriptor: (seat, member)
            for seat, member in zip(self._seats, members, strict=True)
        }
        for seat, member in taken.values():
            seat.connection.socket.sendall(member.first_request())
        waiting = set(taken)
        resting: list[tuple[float, int]] = []
        while not is_stable():
            now_s = time.perf_counter()
            if now_s - begin > STABLE_SECONDS_MAX:
                raise AnswerError(f"the group is not stable after {STABLE_SECONDS_MAX:g} s")
            while resting and resting[0][0] <= now_s:
                _, descriptor = heapq.heappop(resting)
                seat, member = taken[descriptor]
                seat.connection.socket.sendall(member.heartbeat())
                waiting.add(descriptor)
            rest_s = resting[0][0] - now_s if resting else HEARTBEAT_S
            for descriptor, _ in self._poll.poll(rest_s):
                if self._take(*taken[descriptor]):
                    waiting.discard(descriptor)
                    heapq.heappush(resting, (time.perf_counter() + HEARTBEAT_S, descriptor))
        took_s = time.perf_counter() - begin
        self._drain(waiting, taken)
        return took_s

    def _take(self, seat: _Seat, member: Member) -> bool:
        """Whether the member rests now."""
        answer = seat.answer()
        if answer is None:
            return False
        request = member.on_answer(answer)
        if request is None:
            return True
        seat.connection.socket.sendall(request)
        return False

    def _drain(self, waiting: Iterable[int], taken: dict[int, tuple[_Seat, Member]]) -> None:
        """Takes the answers that are still on their way, so that the next group starts clean."""
        for descriptor in waiting:
            while taken[descriptor][0].answer() is None:
                pass
