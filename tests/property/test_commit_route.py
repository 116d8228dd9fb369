"""Goal: the short way of an offset commit answers and stores what the long way does.
Method: the same requests to two shards, with the same mishaps at the same times: in one all come
on one connection, where routes are learned and used, in the other each on a connection of its own,
where there are none. Answers and the stored bytes must be equal.
"""

from __future__ import annotations

import random
import uuid
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import MalformedRequest
from ottla.handlers.commit_route import CommitRoute
from ottla.handlers.context import Context, Services
from ottla.protocol.headers import request_header
from ottla.protocol.messages import encode_request
from ottla.runtime.dispatcher import Dispatcher
from ottla.runtime.request_stats import RequestStats
from sim.groups.hosted_shard import a_cluster
from tests.seeds import seed_for
from tests.unit.handlers.group_fakes import GroupServices

OFFSET_COMMIT = 8
ROUNDS, REQUESTS = 50, 60
HEADER_BYTES = len(request_header(OFFSET_COMMIT, 9, 0, "test"))


class Peer:
    listener_name = "PLAINTEXT"
    connection_id = 1
    client_address = "127.0.0.1"

    def __init__(self) -> None:
        self.last_context: Context | None = None


class World:
    def __init__(self, *, is_one_line: bool) -> None:
        self.services = GroupServices()
        self.partition = self.services.hosted.partition
        self._dispatcher = Dispatcher(cast(Services, self.services), RequestStats())
        self._peer = Peer() if is_one_line else None
        self.member_id = self.services.settle()

    def send(self, frame: bytes) -> Any:
        peer = self._peer or Peer()
        try:
            answer = self._dispatcher.dispatch(peer, memoryview(bytearray(frame)))
        except MalformedRequest as refused:
            return str(refused)
        if isinstance(answer, Deferred):
            self.partition.commit_all()
            return "later", answer.result()
        return answer

    def befall(self, mishap: str) -> None:
        """One of the things that make a commit wait, or be refused."""
        hosted = self.services.hosted
        self.partition.holds_back = mishap == "slow"
        self.partition.fail_code = 19 if mishap == "short of replicas" else 0
        self.partition.fails_on_disk = mishap == "disk"
        self.partition.config.flush_messages = 10**9 if mishap == "flush" else 2**63 - 1
        self.partition.config.max_message_bytes = 70 if mishap == "large" else 1_048_588
        self.services.groups.refusal = 14 if mishap == "loading" else 0
        hosted.image = a_cluster(u=1) if mishap == "topic gone" else a_cluster(t=4, u=1)
        hosted.host.run(lambda shard: shard.on_image(hosted.image))


MISHAPS = [
    "slow",
    "short of replicas",
    "disk",
    "flush",
    "large",
    "loading",
    "topic gone",
    *["nothing"] * 20,
]


def a_commit(rng: random.Random, member_id: str, topic_id: uuid.UUID, last: bytes) -> bytes:
    if len(last) > 2 * HEADER_BYTES + 10 and rng.random() < 0.5:
        return _changed(rng, last)
    version = rng.choice((7, 8, 9, 9, 9, 10))
    partitions = [
        {
            "partition_index": rng.choice((0, 0, 0, 1, 3, 4, -1)),
            "committed_offset": rng.choice((0, 5, 2**40, -1)),
            "committed_leader_epoch": rng.choice((-1, 0, 7)),
            "committed_metadata": rng.choice(("", "", "", "", None, "x", "x" * 5000)),
        }
        for _ in range(rng.choice((1, 1, 1, 1, 1, 2)))
    ]
    is_member = rng.random() < 0.7  # without one, only group "h" has no members to object
    name, named = rng.choice([("t", topic_id)] * 9 + [("v", uuid.UUID(int=5))])
    fields = {
        "group_id": "g" if is_member else rng.choice(("g", "h", "h", "h", "h" * 600)),
        "generation_id_or_member_epoch": rng.choice((1, 1, 1, 1, 2)) if is_member else -1,
        "member_id": member_id if is_member else "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{"name": name, "topic_id": named, "partitions": partitions}],
    }
    header = request_header(OFFSET_COMMIT, version, rng.randrange(100), "test")
    return header + encode_request(OFFSET_COMMIT, version, fields)


def _changed(rng: random.Random, last: bytes) -> bytes:
    """Another offset, mostly; or nonsense."""
    kind = rng.randrange(10)
    if kind == 0:
        return last + b"\0"
    if kind == 1:
        return last[: rng.randrange(10, len(last))]
    # Behind the client id, which the short way does not look at again.
    first = HEADER_BYTES - 1 if kind == 2 else len(last) - 20
    at = rng.randrange(first, len(last))
    return last[:at] + bytes((rng.randrange(256),)) + last[at + 1 :]


def test_both_ways_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed_for("commit route"))
    answers: list[bytes | None] = []
    answer_by_route = CommitRoute.answer

    def noted(route: CommitRoute, *given: Any) -> bytes | None:
        answers.append(answer_by_route(route, *given))
        return answers[-1]

    monkeypatch.setattr(CommitRoute, "answer", noted)
    for _ in range(ROUNDS):
        compare(rng)
    taken = sum(answer is not None for answer in answers)
    assert ROUNDS < taken < len(answers), "some go the short way, and some cannot"


def compare(rng: random.Random) -> None:
    short, long = World(is_one_line=True), World(is_one_line=False)
    assert short.member_id == long.member_id
    topic_id = short.services.image.topics["t"].topic_id
    frame = b""
    for _ in range(REQUESTS):
        if not frame or rng.random() < 0.3:
            frame = a_commit(rng, short.member_id, topic_id, frame)
        mishap = rng.choice(MISHAPS)
        for world in (short, long):
            world.befall(mishap)
        assert short.send(frame) == long.send(frame), (mishap, frame)
        assert short.partition.batches == long.partition.batches, (mishap, frame)
        held = long.services.hosted.shard.offsets.by_group
        assert short.services.hosted.shard.offsets.by_group == held
