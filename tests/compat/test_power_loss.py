"""Goal: who has read what a loss of power took finds out, also where other records have its place.
Method: the end of a log is cut while its broker is dead, and the machine seems to have been started
anew. Consumers ask for the end of the epoch that they have read in (KIP-320).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.compat.confluent import create_topic
from tests.compat.conftest import MakeNode
from tests.compat.nodes import Node
from tests.compat.wire import Wire, batch_of, batches_in, produce, stored_bytes

BOOT_ID = "ottla.boot.id"


def end_of_epoch(wire: Wire, topic: str, epoch: int) -> tuple[int, int]:
    schema: Any = import_module("kio.schema.offset_for_leader_epoch.v4.request")
    partition = schema.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=epoch
    )
    request = schema.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=(schema.OffsetForLeaderTopic(topic=topic, partitions=(partition,)),),
    )
    told = wire.call(request).topics[0].partitions[0]
    assert int(told.error_code) == 0
    return told.leader_epoch, told.end_offset


def lose_power(node: Node, topic: str, kept_bytes: int) -> None:
    node.kill()
    (log,) = node.partition_directory(topic).glob("*.log")
    with log.open("r+b") as file:
        file.truncate(kept_bytes)
    boot_id = node.data / BOOT_ID
    if boot_id.exists():
        boot_id.write_text("of another start of this machine\n")
    node.start()


def test_records_that_were_lost_end_their_epoch(make_node: MakeNode) -> None:
    node = make_node()
    topic = create_topic(node.bootstrap)
    with Wire(node.bootstrap) as wire:
        for value in (b"kept", b"lost", b"lost too"):
            assert int(produce(wire, topic, batch_of([value])).error_code) == 0
        assert end_of_epoch(wire, topic, 0) == (0, 3)
        first = batches_in(stored_bytes(wire, topic, 3))[0]
    lose_power(node, topic, first.size)
    with Wire(node.bootstrap) as wire:
        for _ in range(4):
            assert int(produce(wire, topic, batch_of([b"other"])).error_code) == 0
        assert end_of_epoch(wire, topic, 0) == (0, 1)
        batches = batches_in(stored_bytes(wire, topic, 5))
        epochs = [batch.leader_epoch for batch in batches]
        assert epochs[0] == 0 and len(set(epochs[1:])) == 1 and epochs[1] > 0
