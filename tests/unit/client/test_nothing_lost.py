"""Goal: what a consumer has taken is handed out, whatever goes wrong behind it in the same poll; an
error comes when it is its turn, with the offset of what is at fault. Method: scripted brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from ottla.client.columns.fetching import TableReader
from ottla.client.consumer_errors import (
    CorruptBatchError,
    DeserializationError,
    OffsetOutOfRangeError,
)
from ottla.client.fetch_queue import FetchedItem
from ottla.client.fetch_records import Deserializers
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE
from ottla.records.compression import ZSTD
from ottla.records.crc32c import crc32c
from tests.unit.client.consumer_world import ConsumerWorld, Log

Damage = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    yield
    while ConsumerWorld.alive:
        ConsumerWorld.alive.pop().machine.core.close()


def reading(**settings: str) -> ConsumerWorld:
    world = ConsumerWorld({"auto_offset_reset": "earliest", **settings})
    world.log("t")
    world.machine.assign([("t", 0)])
    return world


def checksum_wrong(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def records_wrong(batch: bytes) -> bytes:
    """Sealed by whoever wrote nonsense: the checksum is right."""
    broken = bytearray(batch)
    broken[HEADER_SIZE] = 0x7F
    return sealed(broken)


def packed_wrong(batch: bytes) -> bytes:
    broken = bytearray(batch[:HEADER_SIZE] + bytes(len(batch) - HEADER_SIZE))
    broken[ATTRIBUTES_POSITION + 1] |= ZSTD
    return sealed(broken)


def sealed(batch: bytearray) -> bytes:
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(
        memoryview(batch)[ATTRIBUTES_POSITION:]
    ).to_bytes(4, "big")
    return bytes(batch)


def damage(log: Log, number: int, how: Damage) -> None:
    base, end, batch = log.batches[number]
    log.batches[number] = (base, end, how(batch))


def table_of(world: ConsumerWorld) -> list[bytes]:
    """A poll of the columnar kind."""
    reader = TableReader(None, None, None, None)
    machine = world.machine
    machine.begin_poll()
    try:
        for _ in range(20):
            world.world.settle()
            items = machine.next_items()
            if not items:
                world.world.advance(100)
                continue
            for item, position, epoch, is_done in reader.take(items):
                machine.took(item, position, epoch, is_done=is_done)
            if reader.rows:
                break
    finally:
        machine.end_poll()
    return list(reader.table()["value"].to_pylist())


DAMAGES = [checksum_wrong, records_wrong, packed_wrong]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("in_columns", [False, True])
def test_batches_before_a_damaged_one_are_handed_out(how: Damage, in_columns: bool) -> None:
    world = reading()
    log = world.log("t")
    for value in (b"a", b"b", b"c", b"d"):
        log.append(value, value)
    damage(log, 2, how)
    take = partial(table_of, world) if in_columns else world.values
    got = take()
    while len(got) < 4 and (more := take()):
        got += more
    assert got == [b"a", b"a", b"b", b"b"]
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as raised:
            take()
        assert raised.value.offset == 4
    world.machine.state_of(("t", 0)).seek(6)
    world.machine.fetcher.touch()
    assert take() == [b"d", b"d"]


def test_a_damaged_batch_behind_many_good_ones() -> None:
    """More than are decoded at once."""
    world = reading()
    log = world.log("t")
    for _ in range(50):
        log.append(*[b"x"] * 100)
    log.append(b"bad")
    damage(log, 50, checksum_wrong)
    assert sum(len(world.poll()) for _ in range(10)) == 5_000
    with pytest.raises(CorruptBatchError) as raised:
        world.poll()
    assert raised.value.offset == 5_000


def test_records_of_one_partition_come_before_the_error_of_another() -> None:
    world = ConsumerWorld({"auto_offset_reset": "none"})
    world.log("t").append(b"a", b"b")
    world.log("t", 1).append(b"c")
    world.machine.assign([("t", 0), ("t", 1)])
    world.machine.state_of(("t", 0)).seek(0)
    world.machine.state_of(("t", 1)).seek(17)
    got, errors = [], 0
    for _ in range(4):
        try:
            got += world.values()
        except OffsetOutOfRangeError:
            errors += 1
    assert got == [b"a", b"b"]
    assert errors >= 1


def test_records_of_one_partition_come_before_the_damage_of_another() -> None:
    world = ConsumerWorld({"auto_offset_reset": "earliest"})
    world.log("t").append(b"a", b"b")
    world.log("t", 1).append(b"c")
    damage(world.log("t", 1), 0, checksum_wrong)
    world.machine.assign([("t", 0), ("t", 1)])
    got = []
    for _ in range(4):
        try:
            got += world.values()
        except CorruptBatchError as error:
            assert error.partition == ("t", 1)
    assert got == [b"a", b"b"]


def test_a_record_that_cannot_be_deserialized_is_named_after_those_before_it() -> None:
    world = reading()
    world.deserializers = Deserializers(None, int)
    world.log("t").append(b"1", b"2", b"three", b"4")
    assert [record.value for record in world.poll()] == [1, 2]
    for _ in range(2):
        with pytest.raises(DeserializationError, match=r"t-0 at offset 2.*ValueError") as raised:
            world.poll()
        assert (raised.value.partition, raised.value.offset) == (("t", 0), 2)
        assert isinstance(raised.value.__cause__, ValueError)
    world.machine.state_of(("t", 0)).seek(3)
    world.machine.fetcher.touch()
    assert [record.value for record in world.poll()] == [4]


def test_a_batch_that_cannot_be_unpacked_is_not_passed_over() -> None:
    """Asked again, it is still there."""
    log = Log()
    log.append(b"a")
    damage(log, 0, packed_wrong)
    log.batches.append((1, 2, build_batch([RecordToWrite(1, None, b"b")], base_offset=1)))
    world = reading()
    world.logs["t", 0].batches, world.logs["t", 0].end = log.batches, 2
    for _ in range(3):
        with pytest.raises(CorruptBatchError):
            world.poll()


def test_tables_say_where_their_rows_began() -> None:
    """So that rows that a format cannot decode are given back."""
    world = reading()
    world.log("t").append(b"a", b"b", b"c")
    world.machine.begin_poll()
    items: list[FetchedItem] = []
    for _ in range(20):
        world.world.settle()
        items = world.machine.next_items()
        if items:
            break
        world.world.advance(100)
    reader = TableReader(2, None, None, None)
    for item, position, epoch, is_done in reader.take(items):
        world.machine.took(item, position, epoch, is_done=is_done)
    world.machine.end_poll()
    assert reader.table()["value"] == pa.chunked_array([[b"a", b"b"]])
    assert reader.began == {("t", 0): (0, -1)}
