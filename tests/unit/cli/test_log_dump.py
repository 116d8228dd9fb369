"""Goal: the dump shows what a log holds and finds whatever is wrong with it.
Method: files built here from batches; then one thing broken at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.cli.failure import Failure
from ottla.cli.log_dump import (
    AbortedTransaction,
    Batch,
    OffsetEntry,
    Problem,
    Producer,
    Record,
    TimeEntry,
    dump,
)
from ottla.log import offset_index, producer_snapshot, time_index, txn_index
from ottla.records.batch_builder import RecordToWrite, build_batch

NAME = "00000000000000000010"
TIME_MS = 1_700_000_000_000


def a_batch(base_offset: int, count: int, *, codec: int = 0, control: bool = False) -> bytes:
    records = [
        RecordToWrite(
            TIME_MS + base_offset + number,
            b"\x00\x00\x00\x01" if control else b"k%d" % number,
            None if number else b"v\x1b\xff",
            [("h", b"1")],
        )
        for number in range(count)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=3,
        codec=codec,
        producer_id=7 if control else -1,
        producer_epoch=2 if control else -1,
        transactional=control,
        control=control,
    )


FIRST, SECOND, THIRD = a_batch(10, 5), a_batch(15, 2, codec=3), a_batch(17, 1, control=True)
SECOND_AT, THIRD_AT = len(FIRST), len(FIRST) + len(SECOND)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound segment with all that can be beside it."""
    write(tmp_path, ".log", FIRST + SECOND + THIRD)
    entries = [(6, SECOND_AT), (7, THIRD_AT)]
    write(tmp_path, ".index", b"".join(offset_index.ENTRY.pack(*entry) for entry in entries))
    times = [(TIME_MS + 16, 6), (TIME_MS + 17, 7)]
    write(tmp_path, ".timeindex", b"".join(time_index.ENTRY.pack(*entry) for entry in times))
    aborted = [txn_index.AbortedTransaction(7, 10, 17, 18)]
    write(tmp_path, ".txnindex", txn_index.build(aborted))
    producers = [producer_snapshot.SnapshotEntry(7, 2, 4, 17, 0, TIME_MS, 5, 16)]
    write(tmp_path, ".snapshot", producer_snapshot.encode(producers))
    return tmp_path


def write(directory: Path, suffix: str, content: bytes) -> Path:
    path = directory / f"{NAME}{suffix}"
    path.write_bytes(content)
    return path


def problems(path: Path, *, with_records: bool = False) -> list[str]:
    found = dump(path, with_records=with_records)
    return [f"{one.position}: {one.reason}" for one in found if isinstance(one, Problem)]


def test_a_directory_without_files_of_a_log_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meta.properties").touch()
    (tmp_path / "orders-0").mkdir()
    assert main.run(["log", "dump", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"ottla: {tmp_path} has no files of a log: give the directory of a partition\n"
    )


def test_batches_as_they_are(directory: Path) -> None:
    first, second, third = dump(directory / f"{NAME}.log", with_records=False)
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    assert isinstance(third, Batch)
    assert (first.base_offset, first.last_offset, first.record_count) == (10, 14, 5)
    assert (first.leader_epoch, first.position, first.size_bytes) == (3, 0, len(FIRST))
    assert (first.base_timestamp, first.max_timestamp) == (TIME_MS + 10, TIME_MS + 14)
    assert (first.timestamp_type, first.producer_id, first.control) == ("CreateTime", -1, False)
    assert (second.codec, second.position, second.crc_ok) == ("lz4", SECOND_AT, True)
    assert (third.transactional, third.control, third.producer_id) == (True, True, 7)


def test_records_follow_their_batch(directory: Path) -> None:
    found = list(dump(directory / f"{NAME}.log", with_records=True))
    assert [type(one) for one in found] == [Batch] + [Record] * 5 + [Batch] + [Record] * 2 + [
        Batch,
        Record,
    ]
    assert found[1] == Record(10, TIME_MS + 10, b"k0", b"v\x1b\xff", (("h", b"1"),))
    assert found[8] == Record(16, TIME_MS + 16, b"k1", None, (("h", b"1"),))


def test_what_is_beside_the_log(directory: Path) -> None:
    def entries(suffix: str) -> list[object]:
        return list(dump(directory / f"{NAME}{suffix}", with_records=False))

    assert entries(".index") == [OffsetEntry(16, SECOND_AT), OffsetEntry(17, THIRD_AT)]
    assert entries(".timeindex") == [TimeEntry(TIME_MS + 16, 16), TimeEntry(TIME_MS + 17, 17)]
    assert entries(".txnindex") == [AbortedTransaction(7, 10, 17, 18)]
    assert entries(".snapshot") == [Producer(7, 2, 4, 17, 0, TIME_MS, 5, 16)]


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (flipped(FIRST, 70) + SECOND, ["0: the CRC of the batch is not"]),
        (FIRST + SECOND[:-3], [f"{SECOND_AT}: a batch of {len(SECOND)} bytes, of which"]),
        (FIRST + SECOND[:20], [f"{SECOND_AT}: 20 bytes, too few for a batch"]),
        (FIRST + bytes(100), [f"{SECOND_AT}: zeros"]),
        (flipped(FIRST, 16) + SECOND, ["0: no batch: magic 3"]),
        (FIRST[:8] + bytes(4) + FIRST[12:], ["0: no batch: magic 2, length 0"]),
        (FIRST[:8] + b"\xff" * 4 + FIRST[12:], ["0: no batch: magic 2, length -1"]),
        (FIRST + FIRST, [f"{SECOND_AT}: offset 10 where 15 or more should be"]),
        (a_batch(9, 1), ["0: offset 9 where 10 or more should be"]),
        (b"", []),
    ],
)
def test_a_broken_log(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    found = problems(write(tmp_path, ".log", content))
    assert len(found) == len(expected)
    for told, begins in zip(found, expected, strict=True):
        assert told.startswith(begins)


def test_reading_goes_on_behind_a_wrong_crc(tmp_path: Path) -> None:
    path = write(tmp_path, ".log", flipped(FIRST, 70) + SECOND)
    batches = [one for one in dump(path, with_records=True) if isinstance(one, Batch)]
    assert [batch.crc_ok for batch in batches] == [False, True]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(6, SECOND_AT + 1)], [f"0: no batch begins at position {SECOND_AT + 1}"]),
        ([(4, SECOND_AT)], [f"0: offset 14 is before position {SECOND_AT}"]),
        ([(7, THIRD_AT), (6, SECOND_AT)], ["8: the entry is not above"]),
        ([(6, SECOND_AT), (0, 0), (0, 0)], []),
        ([(0, 0)], []),
    ],
)
def test_a_broken_offset_index(
    directory: Path, entries: list[tuple[int, int]], expected: list[str]
) -> None:
    content = b"".join(offset_index.ENTRY.pack(*entry) for entry in entries)
    found = problems(write(directory, ".index", content))
    assert len(found) == len(expected)
    assert all(told.startswith(begins) for told, begins in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(TIME_MS + 15, 6)], [f"0: the log has timestamp {TIME_MS + 16} up to offset 16"]),
        ([(TIME_MS + 99, 6), (TIME_MS + 99, 7)], ["12: the entry is not above"]),
        ([(TIME_MS + 98, 6), (TIME_MS + 99, 5)], ["12: the entry is not above"]),
        ([(TIME_MS + 16, 6), (0, 0), (0, 0)], []),
    ],
)
def test_a_broken_time_index(
    directory: Path, entries: list[tuple[int, int]], expected: list[str]
) -> None:
    content = b"".join(time_index.ENTRY.pack(*entry) for entry in entries)
    found = problems(write(directory, ".timeindex", content))
    assert len(found) == len(expected)
    assert all(told.startswith(begins) for told, begins in zip(found, expected, strict=True))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_torn_end(directory: Path, suffix: str) -> None:
    path = directory / f"{NAME}{suffix}"
    path.write_bytes(path.read_bytes() + b"\x01")
    assert len(problems(path)) == 1


def test_a_snapshot_with_a_wrong_crc(directory: Path) -> None:
    path = directory / f"{NAME}.snapshot"
    path.write_bytes(flipped(path.read_bytes(), 20))
    assert problems(path) == ["None: torn, of another version, or its CRC is wrong"]


def test_an_index_without_its_log_is_shown(directory: Path) -> None:
    (directory / f"{NAME}.log").unlink()
    assert problems(directory / f"{NAME}.index") == []


@pytest.mark.parametrize(
    "name", ["orders.log", f"{NAME}.txt", f"{NAME}", "leader-epoch-checkpoint"]
)
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(Failure, match="is no file of a log"):
        dump(tmp_path / name, with_records=False)


def test_a_name_that_is_mistyped_is_told_as_missing(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="ordres-0 cannot be read: No such file or directory"):
        dump(tmp_path / "ordres-0", with_records=False)


def test_a_segment_on_its_way_out_is_still_one(directory: Path) -> None:
    path = (directory / f"{NAME}.log").rename(directory / f"{NAME}.log.deleted")
    assert len(list(dump(path, with_records=False))) == 3


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*arguments: object) -> tuple[int, str, str]:
        code = main.run(["log", "dump", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


def test_the_command_shows_a_directory(directory: Path, run: Run) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    code, out, err = run(directory, "--records")
    assert (code, err) == (0, "")
    verdicts = [line for line in out.splitlines() if line.endswith("no problem")]
    assert verdicts == [
        "2 entries: no problem",
        "3 batches, 8 records: no problem",
        "1 producer: no problem",
        "2 entries: no problem",
        "1 aborted transaction: no problem",
    ]
    assert r"  @10 2023-11-14T22:13:20.010Z key=k0 value=v\x1b\xff headers: h=1" in out
    assert "  @16 2023-11-14T22:13:20.016Z key=k1 value=null headers: h=1" in out
    assert "  @17 2023-11-14T22:13:20.017Z commit marker" in out
    assert "7/2 from -1 transactional control" in out
    assert "open transaction from 16" in out


def test_the_command_fails_for_a_broken_file(directory: Path, run: Run) -> None:
    write(directory, ".log", flipped(FIRST, 70))
    code, out, err = run(directory / f"{NAME}.log")
    assert (code, err) == (1, "ottla: 1 problem found in 1 file\n")
    assert "WRONG" in out
    assert "1 batch, 5 records: 1 PROBLEM" in out


def test_the_command_for_scripts(directory: Path, run: Run) -> None:
    write(directory, ".log", FIRST + SECOND[:20])
    path = directory / f"{NAME}.log"
    code, out, _ = run(path, "--records", "--output", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [line["type"] for line in lines] == ["batch", *["record"] * 5, "problem"]
    assert {line["file"] for line in lines} == {str(path)}
    assert lines[0]["crc_ok"] is True
    assert lines[1] == {
        "file": str(path),
        "type": "record",
        "offset": 10,
        "timestamp": TIME_MS + 10,
        "key": "k0",
        "value_base64": "dhv/",
        "headers": [{"key": "h", "value": "1"}],
    }
    assert lines[-1]["position"] == SECOND_AT


def test_a_file_that_is_not_there(tmp_path: Path, run: Run) -> None:
    code, _, err = run(tmp_path / f"{NAME}.log")
    assert code == 1
    assert err.endswith("cannot be read: No such file or directory\n")
