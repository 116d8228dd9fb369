"""A cluster in memory for the tests of this room: brokers, topics, and decisions that are made."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.base.deferred import Deferred
from ottla.metadata import nodes
from ottla.metadata.bootstrap import decide_cluster_id
from ottla.metadata.changes import apply, image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import (
    CreateResult,
    Decision,
    NewTopic,
    TopicDefaults,
    decide_create_topics,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.topic_settings import TopicSettings

R = TypeVar("R")
CLUSTER_ID = "9B0Gb9fHTdyps9xXL8uT-Q"


class Uuids:
    """Ids in a row: the same in every run."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> uuid.UUID:
        self.count += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, str(self.count))


def registration(
    broker: int,
    rack: str | None = None,
    fenced: bool = False,
    shutting_down: bool = False,
    unclean: bool = False,
) -> bytes:
    return nodes.broker_content(
        {"PLAINTEXT": (f"host{broker}", 9092)},
        {},
        rack,
        fenced=fenced,
        shutting_down=shutting_down,
        unclean=unclean,
    )


SETTINGS = TopicSettings(BrokerConfig({"min.insync.replicas": "2"}))


class Cluster:
    """A store and the image of it; `run` makes a decision and applies it."""

    def __init__(self, brokers: Iterable[int] = (1,), dead: Iterable[int] = ()) -> None:
        self.store = MemoryStore()
        self.store.commit(decide_cluster_id(None, None, CLUSTER_ID))
        for broker in (*brokers, *dead):
            self.store.register(broker, registration(broker))
        for broker in dead:
            self.store.unregister(broker)
        self.store.campaign(1)
        self.new_uuid = Uuids()
        self.image = image_from_snapshot(self.store.load())

    def run(self, decide: Callable[[MetadataImage], Decision[R]]) -> R:
        decision = decide(self.image)
        if decision.writes:
            self.image = apply(self.image, self.store.commit(decision.writes))
        return decision.response

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        answer.resolve(self.run(decide))
        return answer

    def lose(self, broker: int) -> None:
        self.store.unregister(broker)
        self.reload()

    def reload(self) -> None:
        self.image = image_from_snapshot(self.store.load())

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[CreateResult]:
        return self.run(
            lambda image: decide_create_topics(
                image,
                topics,
                defaults=TopicDefaults(),
                check_configs=any_configs,
                new_uuid=self.new_uuid,
                validate_only=validate_only,
            )
        )

    def create_on(self, name: str, *replicas: Iterable[int]) -> None:
        assignments = [(index, tuple(ids)) for index, ids in enumerate(replicas)]
        (result,) = self.create(NewTopic(name, assignments=assignments))
        assert result.error_code == 0, result

    def same_as_store(self) -> bool:
        """The image that grew by changes is the one that a fresh start would load."""
        return image_from_snapshot(self.store.load()) == self.image


def any_configs(configs: Mapping[str, str]) -> None:
    """Every setting will do."""
