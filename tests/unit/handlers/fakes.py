"""A broker for the handlers that change metadata: its controller's door applies decisions at once.

Over the in-memory store, through `changes.apply`, so that the next request sees what the last one
did. Requests and answers go through the codec of the version under test.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.handlers.context import Context, Services
from ottla.handlers.reply import Reply
from ottla.metadata import nodes
from ottla.metadata.bootstrap import decide_cluster_id
from ottla.metadata.changes import apply, image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import Decision, NewTopic, TopicDefaults, decide_create_topics
from ottla.metadata.image import MetadataImage
from ottla.metadata.memory_store import MemoryStore
from ottla.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.protocol.struct_classes import Message

R = TypeVar("R")
BROKER_ID = 1


class FakeController:
    """The door, and the store behind it. `failure` is raised instead of the next commit."""

    def __init__(self, brokers: Iterable[int], dead: Iterable[int]) -> None:
        self.store = MemoryStore()
        self.store.commit(decide_cluster_id(None, None, "9B0Gb9fHTdyps9xXL8uT-Q"))
        for broker in brokers:
            endpoints = {"PLAINTEXT": (f"host{broker}", 9091 + broker)}
            self.store.register(broker, nodes.broker_content(endpoints, {}, None))
        for broker in dead:
            self.store.unregister(broker)
        self.store.campaign(BROKER_ID)
        self.image = image_from_snapshot(self.store.load())
        self.failure: OttlaError | None = None
        self.commits = 0

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        try:
            decision = decide(self.image)
        except ProtocolError as refused:
            answer.fail(refused)
            return answer
        if decision.writes:
            if self.failure is not None:
                answer.fail(self.failure)
                return answer
            self.commits += 1
            self.image = apply(self.image, self.store.commit(decision.writes))
        answer.resolve(decision.response)
        return answer


class FakeServices:
    """Only what the handlers of this kind ask for."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: Iterable[int] = (BROKER_ID,),
        dead: Iterable[int] = (),
    ) -> None:
        self.broker_id = BROKER_ID
        self.controller = FakeController(brokers, dead)
        self._static = BrokerConfig({"node.id": str(BROKER_ID), **(settings or {})})
        self._uuids = 0
        self.turns = 0
        self._later: deque[Callable[[], None]] = deque()

    def soon(self, callback: Callable[[], None]) -> None:
        self._later.append(callback)

    def run_until(self, awaited: Deferred[Any]) -> None:
        """Turn after turn of a loop, until it is done."""
        while not awaited.done:
            self.turns += 1
            self._later.popleft()()

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def config(self) -> BrokerConfig:
        dynamic = self.image.broker_configs
        return self._static.with_dynamic(dynamic.get("", {}), dynamic.get(str(BROKER_ID), {}))

    def new_uuid(self) -> uuid.UUID:
        self._uuids += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, str(self._uuids))


def create_topic(services: FakeServices, name: str, *replicas: Iterable[int]) -> None:
    """A topic with these replicas, partition by partition."""
    topic = NewTopic(name, assignments=[(index, tuple(ids)) for index, ids in enumerate(replicas)])
    (result,) = services.controller.submit(
        lambda image: decide_create_topics(
            image,
            [topic],
            defaults=TopicDefaults(),
            check_configs=lambda configs: None,
            new_uuid=services.new_uuid,
        )
    ).result()
    assert result.error_code == 0, result


def ask(services: FakeServices, module: ModuleType, version: int, **fields: Any) -> dict[str, Any]:
    """The answer as a client of this version reads it, as plain values."""
    body = encode_request(module.API_KEY, version, fields)
    request = decode_request(module.API_KEY, version, body)
    context = Context(cast(Services, services), version, "test", "PLAINTEXT", 1)
    outcome = module.handle(context, request)
    if isinstance(outcome, Deferred):
        services.run_until(outcome)
    answer = outcome.result() if isinstance(outcome, Deferred) else outcome
    if isinstance(answer, Reply):
        encoded = b"".join(cast("list[bytes]", answer.parts))
        assert answer.size == len(encoded)
    else:
        encoded = encode_response(module.API_KEY, version, answer)
    return cast(dict[str, Any], plain(decode_response(module.API_KEY, version, encoded)))


def plain(value: Any) -> Any:
    """Structs as dicts, ids as texts."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, uuid.UUID) else value


def versions_of(module: ModuleType) -> range:
    lowest, highest = module.VERSIONS
    return range(lowest, highest + 1)
