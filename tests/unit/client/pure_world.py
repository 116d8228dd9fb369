"""A core without sockets: brokers are functions, time is a number, bytes go from hand to hand.

`World` does for a core what a shell does. A broker is a set of answers by API key: a callable that
takes the decoded request (and its version) and gives the fields of the answer (`Later`, if it takes
its time), None for no answer at all, or an Exception to cut the connection. Whatever is not
scripted fails the test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from ottla.client.connection import CLOSED, Connection
from ottla.client.core import Core
from ottla.protocol import api_keys, messages
from ottla.protocol.headers import read_request_header, response_header


class Later(NamedTuple):
    """An answer that takes its time."""

    delay_ms: float
    fields: Mapping[str, Any]


Answer = Callable[[Any, int], Mapping[str, Any] | bytes | Exception | Later | None]

HOST = "broker"
FIRST_PORT = 9000


def versions(
    ranges: Mapping[int, tuple[int, int]] | None = None, features: Mapping[str, int] | None = None
) -> Answer:
    """An ApiVersions answer with these ranges (else of everything that has a schema)."""
    served = ranges or {
        key: messages.supported_versions(key)
        for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 22, 23, 24, 25, 26, 28, 68)
    }
    fields = {
        "error_code": 0,
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in served.items()
        ],
        "throttle_time_ms": 0,
        "supported_features": [],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in (features or {}).items()
        ],
        "zk_migration_ready": False,
    }
    return lambda request, version: fields


def metadata(topics: Mapping[str, Any], nodes: int = 1) -> dict[str, Any]:
    """Metadata fields: topic -> list of leaders by partition, or an error code."""
    return {
        "brokers": [
            {"node_id": node, "host": HOST, "port": FIRST_PORT + node, "rack": None}
            for node in range(nodes)
        ],
        "throttle_time_ms": 0,
        "error_code": 0,
        "cluster_id": "pure",
        "controller_id": 0,
        "topics": [
            {
                "error_code": 0 if isinstance(leaders, list) else leaders,
                "name": name,
                "topic_id": None,
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": index,
                        "leader_id": leader,
                        "leader_epoch": 0,
                        "replica_nodes": [leader],
                        "isr_nodes": [leader],
                        "offline_replicas": [],
                    }
                    for index, leader in enumerate(leaders if isinstance(leaders, list) else [])
                ],
            }
            for name, leaders in topics.items()
        ],
    }


class World:
    def __init__(self, core: Core, answers: Mapping[int, Answer]) -> None:
        self.core = core
        self.answers = {api_keys.API_VERSIONS: versions(), **answers}
        self.now_ms = 1000.0
        self.requests: list[tuple[int, int, Any]] = []  # (port, api key, request)
        self.down: set[int] = set()  # ports that refuse connections
        self._buffers: dict[Connection, bytearray] = {}
        self._inbox: deque[tuple[Connection, bytes | Exception]] = deque()
        self._delayed: list[tuple[float, Connection, bytes]] = []
        core.now_ms = self.now_ms

    def settle(self) -> None:
        """Until nobody has anything to say at this time."""
        self.core.end_turn()
        nodes = self.core.nodes
        while nodes.opening or nodes.writable or nodes.closing or self._inbox:
            opening, nodes.opening = nodes.opening, []
            for connection in opening:
                if connection.port in self.down:
                    self.core.on_lost(connection, "refused", self.now_ms)
                else:
                    self._buffers[connection] = bytearray()
                    self.core.on_open(connection, self.now_ms)
            writable, nodes.writable = nodes.writable, []
            for connection in writable:
                self._take(connection)
            closing, nodes.closing = nodes.closing, []
            for connection in closing:
                self._buffers.pop(connection, None)
            if self._inbox:
                self._deliver(*self._inbox.popleft())

    def advance(self, milliseconds: float) -> None:
        """Time passes, from deadline to deadline."""
        end_ms = self.now_ms + milliseconds
        self.settle()
        while (deadline_ms := self._next_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            for late in [one for one in self._delayed if one[0] <= self.now_ms]:
                self._delayed.remove(late)
                self._inbox.append((late[1], late[2]))
            self.core.on_time(self.now_ms)
            self.settle()
        self.now_ms = end_ms
        self.core.on_time(end_ms)
        self.settle()

    def run(self, flow: Coroutine[Any, Any, Any], within_ms: float = 100_000) -> Any:
        """The result of a flow, in as much time as it needs."""
        running = self.core.spawn(flow)
        running.when_done(lambda _: None)
        self.settle()
        end_ms = self.now_ms + within_ms
        while not running.done and self.now_ms < end_ms:
            deadline_ms = self._next_ms()
            assert deadline_ms is not None, "the flow waits for nothing that will ever come"
            self.advance(max(deadline_ms - self.now_ms, 0))
        return running.result()

    def _next_ms(self) -> float | None:
        times = [late[0] for late in self._delayed]
        deadline_ms = self.core.next_deadline_ms()
        return min(times if deadline_ms is None else [*times, deadline_ms], default=None)

    def names(self) -> list[str]:
        return [api_keys.name_of(api_key) for _, api_key, _ in self.requests]

    def cut(self, port: int) -> None:
        for connection in list(self._buffers):
            if connection.port == port and connection.state != CLOSED:
                self.core.on_lost(connection, "cut", self.now_ms)
        self.settle()

    def answer_later(self, connection: Connection, frame: bytes) -> None:
        self._inbox.append((connection, frame))

    def _take(self, connection: Connection) -> None:
        buffer = self._buffers.get(connection)
        if buffer is None:
            return
        for part in connection.take_outgoing():
            buffer += part
        while len(buffer) >= 4:
            size = int.from_bytes(buffer[:4], "big")
            if len(buffer) < 4 + size:
                return
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            self._answer(connection, frame)

    def _answer(self, connection: Connection, frame: bytes) -> None:
        header = read_request_header(memoryview(frame))
        key, version = header.api_key, header.api_version
        request = messages.decode_request(key, version, frame[header.body_position :])
        self.requests.append((connection.port, key, request))
        fields = self.answers[key](request, version)
        if fields is None:
            return
        if isinstance(fields, Exception):
            self._inbox.append((connection, fields))
            return
        delay_ms = fields.delay_ms if isinstance(fields, Later) else 0.0
        if isinstance(fields, Later):
            fields = fields.fields
        body = (
            fields if isinstance(fields, bytes) else messages.encode_response(key, version, fields)
        )
        answer = response_header(key, version, header.correlation_id) + body
        before = [due_ms for due_ms, other, _ in self._delayed if other is connection]
        if delay_ms or before:  # a broker answers in order
            due_ms = max([self.now_ms + delay_ms, *before])
            self._delayed.append((due_ms, connection, answer))
        else:
            self._inbox.append((connection, answer))

    def _deliver(self, connection: Connection, frame: bytes | Exception) -> None:
        if connection.state == CLOSED:
            return
        if isinstance(frame, Exception):
            self.core.on_lost(connection, str(frame), self.now_ms)
            return
        data = len(frame).to_bytes(4, "big") + frame
        while data and connection.state != CLOSED:
            room = connection.frames.buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.core.on_received(connection, count, self.now_ms)
