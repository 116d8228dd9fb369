"""Many light clients in one process: each sends its request again as soon as it has the answer.

Made for small answers of one shape: an answer comes whole, and its error code stands at one place.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence

from bench.wire import AnswerError, Connection
from ottla.protocol.error_codes import name_of

_SIZE = 4
_ANSWER_BYTES_MAX = 65536
_TIMEOUT_S = 30.0
_ERROR = struct.Struct(">h")


def run_closed_loop(
    bootstrap: str, requests: Sequence[bytes], error_at: int, seconds: float, count_max: int = 0
) -> tuple[int, float]:
    """One client per request. Answers so far, and seconds, when the time or the count is over."""
    connections = {}
    poll = select.epoll()
    for request in requests:
        connection = Connection(bootstrap)
        connections[connection.socket.fileno()] = (connection.socket, request)
        poll.register(connection.socket, select.EPOLLIN)
    try:
        return _loop(poll, connections, error_at + _SIZE, seconds, count_max)
    finally:
        poll.close()
        for connected, _ in connections.values():
            connected.close()


def _loop(
    poll: select.epoll,
    connections: dict[int, tuple[socket.socket, bytes]],
    error_at: int,
    seconds: float,
    count_max: int,
) -> tuple[int, float]:
    clock, answers = time.perf_counter, 0
    begin = clock()
    end = begin + seconds
    for connected, request in connections.values():
        connected.sendall(request)
    waiting = len(connections)
    is_over = False
    while waiting:
        ready = poll.poll(_TIMEOUT_S)
        if not ready:
            raise AnswerError(f"no answer in {_TIMEOUT_S:g} s")
        for descriptor, _ in ready:
            connected, request = connections[descriptor]
            answer = connected.recv(_ANSWER_BYTES_MAX)
            if len(answer) < error_at + _ERROR.size:
                raise AnswerError(f"an answer of {len(answer)} bytes")
            (error_code,) = _ERROR.unpack_from(answer, error_at)
            if error_code:
                raise AnswerError(f"the answer is {name_of(error_code)}")
            answers += 1
            if is_over:
                waiting -= 1
            else:
                connected.sendall(request)
        is_over = is_over or clock() >= end or 0 < count_max <= answers
    return answers, clock() - begin
