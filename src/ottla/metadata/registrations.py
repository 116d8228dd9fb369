"""What a broker says of itself in its registration, and brokers that are to be forgotten.

A broker registers fenced: it takes part once it serves. It stops by saying so first, and hands its
partitions over by commits of its own while it is still there.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths
from ottla.metadata.decision import Decision, decided
from ottla.metadata.duties import Done, Moved
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.store import ABSENT, Gone, Write
from ottla.metadata.topic_settings import TopicSettings
from ottla.protocol.error_codes import BROKER_ID_NOT_REGISTERED, INVALID_REQUEST


def decide_serving(image: MetadataImage, broker_id: int) -> Decision[None]:
    """The broker takes part from now on. Only when `may_serve`."""
    check_registered(image, broker_id)
    broker = image.brokers[broker_id]
    if not broker.fenced:
        return Decision([], None)
    return _say(image, replace(broker, fenced=False, unclean=False))


def decide_stopping(image: MetadataImage, broker_id: int) -> Decision[None]:
    check_registered(image, broker_id)
    broker = image.brokers[broker_id]
    if broker.shutting_down:
        return Decision([], None)
    return _say(image, replace(broker, shutting_down=True))


def is_registered(image: MetadataImage, broker_id: int) -> bool:
    """A broker whose session has ended may hear of its own end first: what it said of itself, that
    it may have lost records above all, is no longer there, and it has to register again."""
    return image.version_of(paths.broker_id(broker_id)) != ABSENT


def check_registered(image: MetadataImage, broker_id: int) -> None:
    if not is_registered(image, broker_id):
        raise ProtocolError(BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")


def _say(image: MetadataImage, broker: BrokerRegistration) -> Decision[None]:
    return Decision([registration_write(image, broker)], None)


def registration_write(image: MetadataImage, broker: BrokerRegistration) -> Write:
    """What a broker says of itself in place of what it has said before."""
    content = nodes.broker_content(
        broker.endpoints,
        broker.security_protocols,
        broker.rack,
        fenced=broker.fenced,
        shutting_down=broker.shutting_down,
        unclean=broker.unclean,
        offline=broker.offline,
    )
    path = paths.broker_id(broker.broker_id)
    return Write(path, content, image.version_of(path))


def may_serve(image: MetadataImage, broker_id: int, settings: TopicSettings) -> bool:
    """Whether nothing is left of an earlier life of this broker.

    It leads nothing: an epoch has one leader, and the one that comes back does not know how far it
    was. If it may have lost records, it is in no set of those who have them, unless it is the last.
    """
    if not is_registered(image, broker_id):
        return False
    if not image.brokers[broker_id].fenced:
        return True  # a single node: nobody could have taken over
    unclean = image.brokers[broker_id].unclean
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if state.leader == broker_id:
                return False
            if unclean and (broker_id in state.in_sync or broker_id in state.eligible):
                without = PartitionChange(
                    state,
                    image.may_lead_in(topic, index),
                    settings.min_in_sync(topic),
                    unknowing=image.unclean_brokers() | image.lost_by(topic, index),
                ).built()
                if without != state:
                    return False
    return True


def decide_new_epochs(
    image: MetadataImage, broker_id: int, settings: TopicSettings
) -> Decision[None]:
    """A new leader epoch for all that a single node leads, after a loss of power.

    What it may have lost had its offsets in the old epoch. Given to other records in the same one,
    a consumer that had read further could not find out, and would miss the others.
    """
    writes = PartitionWrites(image)
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if state.leader == broker_id:
                change = PartitionChange(
                    state, lambda _: True, settings.min_in_sync(topic), new_epoch=True
                )
                writes.add(topic, index, change.built())
    return decided(image, writes.operations(), None)


def decide_hand_over(
    image: MetadataImage, broker_id: int, settings: TopicSettings
) -> Decision[Done] | None:
    """What a broker that stops leads or copies goes to others, as far as there are any.

    Where nobody else could lead it leads to the end. None: there is nothing (more) to hand over.
    """
    writes = PartitionWrites(image)
    done = Done()
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if broker_id not in state.in_sync or len(state.in_sync) == 1:
                continue
            after = PartitionChange(
                state,
                image.may_lead_in(topic, index),
                settings.min_in_sync(topic),
                leaving={broker_id},
                unknowing=image.unclean_brokers() | image.lost_by(topic, index),
            ).built()
            if after.leader == -1 != state.leader:
                continue
            if writes.add(topic, index, after):
                done.moved.append(Moved(topic.name, index, state, after))
            if writes.is_full():
                return decided(image, writes.operations(), done)
    return None if writes.is_empty() else decided(image, writes.operations(), done)


def decide_unregister(image: MetadataImage, broker_id: int) -> Decision[None]:
    """A broker that is dead, and will not come back, is forgotten."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ProtocolError(
            BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    if broker.epoch != -1:
        raise ProtocolError(INVALID_REQUEST, f"Broker {broker_id} is alive: stop it first.")
    path = paths.broker_epoch(broker_id)
    gone = Gone(paths.broker_id(broker_id))
    return decided(image, [gone, Write(path, None, image.version_of(path))], None)
