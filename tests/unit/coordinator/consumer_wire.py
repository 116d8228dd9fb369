"""Holds a conversation of `consumer_steps` with a broker over TCP.

    python -m tests.unit.coordinator.consumer_wire 127.0.0.1:9092 > consumer_answers.jsonl

records it; the broker has to be a fresh one with SETTINGS.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.protocol import messages
from tests.patience import SECONDS_MAX
from tests.unit.coordinator.consumer_conversations import TOPICS, Progress, Step
from tests.unit.coordinator.consumer_steps import CONVERSATIONS

CREATE_TOPICS, FIND_COORDINATOR, METADATA = 19, 10, 3
NOT_YET = {14, 15, 16}


class GroupWire:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), SECONDS_MAX)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
        body = messages.encode_request(api_key, version, request)
        self._correlation_id += 1
        is_flexible = api_key not in _FLEXIBLE_FROM or version >= _FLEXIBLE_FROM[api_key]
        client = b"told"
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client)) + client
        frame = header + (b"\x00" if is_flexible else b"") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        data = self._receive(size)
        answer = messages.decode_response(api_key, version, data[5 if is_flexible else 4 :])
        fields: dict[str, Any] = as_fields(answer)
        return fields

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            assert part, "the broker closed the connection"
            parts += part
        return bytes(parts)

    def make_topics(self, counts: Mapping[str, int]) -> dict[str, str]:
        """Names by ids, as text; the topics may be there already."""
        topics = [
            {
                "name": name,
                "num_partitions": count,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name, count in counts.items()
        ]
        request = {"topics": topics, "timeout_ms": 10_000, "validate_only": False}
        self.ask(CREATE_TOPICS, 7, request)
        wanted = [{"name": name, "topic_id": None} for name in counts]
        request = {
            "topics": wanted,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = self.ask(METADATA, 12, request)
        return {str(topic["topic_id"]): topic["name"] for topic in answer["topics"]}

    def await_coordinator(self, group_id: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        request = {"key_type": 0, "coordinator_keys": [group_id]}
        while self.ask(FIND_COORDINATOR, 4, request)["coordinators"][0]["error_code"] in NOT_YET:
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    def hold(self, steps: Sequence[Step], names: Mapping[str, str]) -> Iterator[tuple[Step, Any]]:
        """Each step with its answer as it is kept."""
        group_id = f"group-{uuid.uuid4().hex[:8]}"
        self.await_coordinator(group_id)
        progress = Progress({name: uuid.UUID(text) for text, name in names.items()}, group_id)
        for step in steps:
            yield step, progress.answer(step, self._ask_when_ready(step, progress.request(step)))

    def _ask_when_ready(self, step: Step, request: Mapping[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = self.ask(step.api_key, step.version, request)
            # What a step waits for is an assignment.
            is_early = step.wait_ms > 0 and answer.get("assignment") is None
            is_ready = answer.get("error_code") not in NOT_YET and not is_early
            if is_ready or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)


def as_fields(message: Any) -> Any:
    if isinstance(message, list | tuple):
        return [as_fields(one) for one in message]
    names = getattr(message, "__slots__", None)
    if names is None or isinstance(message, str | bytes | int | uuid.UUID):
        return message
    return {name: as_fields(getattr(message, name)) for name in names}


_FLEXIBLE_FROM = {8: 8, 9: 6, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 42: 2, 47: 99, 19: 5, 3: 9}


def main(bootstrap: str) -> None:
    wire = GroupWire(bootstrap)
    names = wire.make_topics(TOPICS)
    for conversation, steps in CONVERSATIONS.items():
        for number, (step, answer) in enumerate(wire.hold(steps, names)):
            line = {"conversation": conversation, "step": number, "title": step.title}
            print(json.dumps({**line, "answer": answer}, separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1])
