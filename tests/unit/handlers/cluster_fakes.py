"""One broker of a cluster for the handlers of records: real partitions, an image, virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from ottla.base.deferred import Deferred, all_of
from ottla.handlers.context import Context, Services
from ottla.handlers.reply import Reply
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
from ottla.protocol.messages import decode_response, encode_request
from ottla.replication.effects import Assignment
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.partition import Partition
from sim.groups.virtual import VirtualTime
from tests.unit.handlers.read_fakes import LISTENER, a_broker
from tests.unit.replication.replicas import TOPIC_ID, Replica

ME = 1


class ClusterBroker:
    """Broker 1 of three, with a replica of `topic`-0; the image says the same as the replica."""

    def __init__(
        self, leader: int = ME, epoch: int = 5, settings: dict[str, str] | None = None
    ) -> None:
        self.time = VirtualTime()
        self.replica = Replica(ME)
        self._soon: list[Callable[[], None]] = []
        self.image = MetadataImage(
            brokers={one: a_broker(one, rack=f"rack{one}") for one in (1, 2, 3)},
            topics={"topic": TopicImage("topic", TOPIC_ID, {})},
            topic_names_by_id={TOPIC_ID: "topic"},
        )
        self.services = SimpleNamespace(
            broker_id=ME,
            config=BrokerConfig(settings or {}),
            clock=self.time,
            timers=self.time,
            partitions=SimpleNamespace(find=self._find),
            fetch_sessions=FetchSessions(10, lambda: 5),
            advertised_endpoint=self._endpoint,
            soon=self._soon.append,
            save_log_starts=lambda log_dir: all_of([]),
        )
        self.become(leader, epoch)

    def become(
        self, leader: int, epoch: int, version: int = 0, in_sync: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        state = PartitionState(leader, epoch, (1, 2, 3), in_sync, version)
        topic = replace(self.image.topics["topic"], partitions={0: state, 1: state})
        self.image = replace(self.image, topics={"topic": topic})
        self.services.image = self.image
        self.replica.assume(
            Assignment(leader, epoch, version, state.replicas, in_sync), self.time.monotonic_ms()
        )

    def turn_ends(self) -> None:
        """What was to be done at the end of the loop's turn is done."""
        while self._soon:
            self._soon.pop(0)()

    def _find(self, topic: str, index: int) -> Partition | None:
        return self.replica.partition if (topic, index) == ("topic", 0) else None

    def _endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def ask(self, module: ModuleType, version: int, **fields: Any) -> Any:
        """The answer, decoded; or the Deferred of a reply."""
        key = module.API_KEY
        context = Context(cast(Services, self.services), version, "x", LISTENER, 1, "127.0.0.1")
        reply = module.handle(context, memoryview(encode_request(key, version, fields)))
        return reply if isinstance(reply, Deferred) else decoded(reply, key, version)


def decoded(reply: Reply, key: int, version: int) -> Any:
    body = b"".join(
        part if isinstance(part, bytes) else part.file.read_at(part.position, part.size)
        for part in reply.parts
    )
    return decode_response(key, version, body)
