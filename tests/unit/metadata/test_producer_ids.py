"""Goal: no producer id is handed out twice, whatever fails.
Method: blocks one after the other, over a reload, and two decisions on the same image.
"""

from __future__ import annotations

import dataclasses

import pytest

from ottla.base.errors import InvariantError
from ottla.metadata.controller import decide_producer_id_block
from ottla.metadata.producer_ids import PRODUCER_ID_MAX
from ottla.metadata.store import VersionConflict
from tests.unit.metadata.builders import Cluster


def test_blocks_of_a_thousand() -> None:
    cluster = Cluster()
    assert cluster.run(decide_producer_id_block) == (0, 1000)
    assert cluster.run(lambda image: decide_producer_id_block(image, 1)) == (1000, 1000)
    cluster.reload()
    assert cluster.run(decide_producer_id_block) == (2000, 1000)


def test_two_decisions_on_one_image_do_not_share_a_block() -> None:
    cluster = Cluster()
    first, second = (decide_producer_id_block(cluster.image, broker) for broker in (1, 2))
    cluster.store.commit(first.writes)
    with pytest.raises(VersionConflict):
        cluster.store.commit(second.writes)


def test_the_last_one() -> None:
    image = dataclasses.replace(Cluster().image, next_producer_id=PRODUCER_ID_MAX - 998)
    with pytest.raises(InvariantError):
        decide_producer_id_block(image)
