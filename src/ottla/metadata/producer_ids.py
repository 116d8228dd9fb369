"""Producer ids: handed out to brokers in blocks, each number once in the cluster's life."""

from __future__ import annotations

from ottla.base.errors import check
from ottla.metadata import nodes, paths
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import Write

BLOCK_SIZE = 1_000
PRODUCER_ID_MAX = 2**63 - 1


def decide_producer_id_block(
    image: MetadataImage, broker_id: int = -1
) -> Decision[tuple[int, int]]:
    """The first id of a block that nobody has, and how many ids are in it."""
    first = image.next_producer_id
    last = first + BLOCK_SIZE - 1
    check(last <= PRODUCER_ID_MAX, "producer ids are used up")
    content = nodes.producer_id_block(broker_id, first, last)
    write = Write(paths.PRODUCER_ID_BLOCK, content, image.version_of(paths.PRODUCER_ID_BLOCK))
    return decided(image, [write], (first, BLOCK_SIZE))
