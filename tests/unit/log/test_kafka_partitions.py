"""Goal: a partition that Apache Kafka 4.3.1 wrote opens here, and what we make of it is the same.
Method: `kafka_partitions/` was written by a Kafka broker: `batches-0` by an idempotent producer
with small batches, `txn-0` by transactional ones of which every second transaction was aborted, and
one was open over a restart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log import dump
from ottla.log.batch_scan import scan_batches
from tests.unit.log.world import DIRECTORY, World, all_offsets, batch

PARTITIONS = Path(__file__).with_name("kafka_partitions")
ENDS = {"batches-0": 32, "txn-0": 90}
EPOCHS = {"batches-0": [(0, 0)], "txn-0": [(0, 0), (2, 89)]}


def a_world(name: str) -> World:
    world = World()
    for path in (PARTITIONS / name).iterdir():
        world.files.put(f"{DIRECTORY}/{path.name}", path.read_bytes())
    return world


@pytest.mark.parametrize("name", ENDS)
def test_after_a_clean_stop(name: str) -> None:
    world = a_world(name)
    log = world.open(clean=True, recovery_point=ENDS[name])
    assert (world.report.segments_recovered, world.report.indexes_rebuilt) == (0, 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, ENDS[name])
    assert log.leader_epochs.entries() == EPOCHS[name]
    offsets = all_offsets(log)
    assert offsets[0] == 0 and len(offsets) > 10
    part = log.read(0, 10**6, ENDS[name])
    assert part is not None
    checked = list(scan_batches(part.file, 0, part.size, 0))
    assert len(checked) == len(offsets)


@pytest.mark.parametrize("name", ENDS)
def test_what_is_made_anew_equals_what_kafka_wrote(name: str) -> None:
    world = a_world(name)
    written = world.files.contents()
    for path in written:
        if not path.endswith((".log", ".metadata")):
            world.files.remove(path)
    world.open()
    world.log.close()
    for path, content in world.files.contents().items():
        if path.endswith(".timeindex"):
            # Kafka has added an entry at its first close; made anew there is only the last one.
            assert written[path].endswith(content)
        else:
            assert written[path] == content, path
    assert {path for path in written if path.endswith("index")} <= set(world.files.contents())


def test_its_producer_goes_on() -> None:
    world = a_world("batches-0")
    log = world.open(clean=True, recovery_point=32)
    [producer_id] = log.producers.entries
    last = log.producers.entries[producer_id]
    assert (last.next_sequence, last.last_offset()) == (32, 31)
    resent = world.append(batch(1, producer_id=producer_id, sequence=29))
    assert (resent.duplicate, resent.base_offset) == (True, 29)
    assert world.append(batch(1, producer_id=producer_id, sequence=32)).base_offset == 32


def test_its_transactions() -> None:
    world = a_world("txn-0")
    log = world.open(clean=True, recovery_point=90)
    aborted = [(1, 11), (1, 33), (2, 55), (2, 77), (3, 88)]
    assert log.aborted_transactions(0, 90) == aborted
    assert log.first_unstable_offset is None
    listed = dump.dump_txn_index(world.content(0, ".txnindex"))
    assert [(one.producer_id, one.first_offset) for one in listed] == aborted


def test_its_index_leads_to_batches() -> None:
    world = a_world("batches-0")
    entries = dump.dump_offset_index(world.content(0, ".index"), 0)
    assert len(entries) == 5
    assert dump.check_offset_index(entries, world.files.open(world.path(0))) == []
    times = dump.dump_time_index(world.content(0, ".timeindex"), 0)
    assert times[-1] == (1_700_000_031_000, 31)


def test_its_times() -> None:
    log = a_world("batches-0").open(clean=True, recovery_point=32)
    assert log.times().first_since(1_700_000_012_001, 32).run() == (1_700_000_013_000, 13, 0)
    assert log.times().latest(32).run() == (1_700_000_031_000, 31, 0)
