"""Files and tables as sinks, without Spark: every batch once, and its offsets with it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from ottla.spark.errors import OptionError, RowError, SinkConflict
from ottla.spark.tables import iceberg_sink, parquet_sink, places
from ottla.spark.tables.batch_offsets import merged
from ottla.spark.tables.iceberg_sink import IcebergOptions, last_batch, parse_iceberg_options
from ottla.spark.tables.parquet_sink import (
    FileWritten,
    ParquetOptions,
    commit_files,
    manifest_of,
    parse_parquet_options,
    roll_forward,
    write_file,
)
from ottla.spark.tables.places import Place
from ottla.spark.tasks import StreamTask

QUERY = "0123456789abcdef"
OFFSETS = {"orders": {"0": 5, "1": 7}}


def rows(*values: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": pa.array(values, pa.int64())})


def task(batch: int, number: int = 0, run: str = "run-one") -> StreamTask:
    return StreamTask(QUERY, run, batch, number, attempt=batch * 10 + number)


class Parquet:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = Place(str(path))
        self.options = ParquetOptions(str(path), "zstd", "")

    def write(self, batch: int, *values: int, number: int = 0, run: str = "run-one") -> FileWritten:
        return write_file(self.place, self.options, task(batch, number, run), rows(*values))

    def values(self) -> list[int]:
        """As any reader sees them, that passes over what begins with an underscore."""
        files = [str(one) for one in self.path.glob("*.parquet")]
        return sorted(ds.dataset(files).to_table().column("n").to_pylist()) if files else []


@pytest.fixture
def files(tmp_path: Path) -> Parquet:
    return Parquet(tmp_path / "orders")


def test_files_appear_with_their_batch_and_the_manifest_has_its_offsets(files: Parquet) -> None:
    written = [files.write(0, 1, 2), files.write(0, 3, number=1), files.write(0, number=2)]
    assert files.values() == []
    commit_files(files.place, 0, written, OFFSETS)
    assert files.values() == [1, 2, 3]
    found = manifest_of(files.place, QUERY, 0)
    assert (found["rows"], found["offsets"]) == (3, OFFSETS)
    assert len(found["files"]) == 2


def test_a_batch_that_comes_again_changes_nothing(files: Parquet) -> None:
    commit_files(files.place, 0, [files.write(0, 1, 2)], OFFSETS)
    commit_files(files.place, 0, [files.write(0, 1, 2, run="run-two")], OFFSETS)
    assert files.values() == [1, 2]
    assert files.place.names(parquet_sink.STAGED) == []


@pytest.mark.parametrize("moved", [0, 1])
def test_a_driver_that_dies_after_its_decision_is_followed_up(files: Parquet, moved: int) -> None:
    written = [files.write(0, 1), files.write(0, 2, number=1)]
    names = [one.name for one in written]
    manifest = {"query": QUERY, "batch": 0, "rows": 2, "files": names, "offsets": {}}
    files.place.create(parquet_sink.manifest_name(QUERY, 0), json.dumps(manifest).encode())
    for name in names[:moved]:
        files.place.move(f"{parquet_sink.STAGED}/{name}", name)
    commit_files(files.place, 0, [files.write(0, 1, 2, run="run-two")], {})
    assert files.values() == [1, 2]


def test_what_a_dead_run_staged_is_removed_with_its_batch(files: Parquet) -> None:
    files.write(0, 99, run="dead-run")
    later = files.write(1, 3)
    commit_files(files.place, 0, [files.write(0, 1)], {})
    assert files.place.names(parquet_sink.STAGED) == [later.name]
    assert files.values() == [1]


def test_files_that_somebody_removed_are_missed(files: Parquet) -> None:
    written = files.write(0, 1)
    files.place.remove(f"{parquet_sink.STAGED}/{written.name}")
    with pytest.raises(SinkConflict, match="belongs to batch 0 and is gone"):
        commit_files(files.place, 0, [written], {})
    with pytest.raises(SinkConflict, match="is gone"):
        roll_forward(files.place, QUERY, 0)


def iceberg(tmp_path: Path) -> IcebergOptions:
    return parse_iceberg_options(
        {
            "table": "shop.orders",
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
            "catalog.warehouse": f"file://{tmp_path}/warehouse",
            "checkpointLocation": "somewhere",
        }
    )


def test_every_snapshot_of_an_iceberg_table_carries_its_offsets(tmp_path: Path) -> None:
    options = iceberg(tmp_path)
    for batch, values in enumerate([(1, 2), (), (3,)]):
        written = [iceberg_sink.write_data(options, task(batch), rows(*values))]
        iceberg_sink.add_snapshot(options, batch, written, {"orders": {"0": batch}})
    table = iceberg_sink.catalog_of(options).load_table("shop.orders")
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == [1, 2, 3]
    found = [
        (one.summary[iceberg_sink.BATCH], json.loads(one.summary[iceberg_sink.OFFSETS]))
        for one in table.metadata.snapshots
    ]
    assert found == [("0", {"orders": {"0": 0}}), ("2", {"orders": {"0": 2}})]
    assert last_batch(table, QUERY) == 2
    assert last_batch(table, "another") == -1


def test_a_batch_is_added_to_an_iceberg_table_once(tmp_path: Path) -> None:
    options = iceberg(tmp_path)
    for run in ("run-one", "run-two"):
        written = [iceberg_sink.write_data(options, task(0, run=run), rows(1, 2))]
        iceberg_sink.add_snapshot(options, 0, written, {})
    table = iceberg_sink.catalog_of(options).load_table("shop.orders")
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"n": ["one"]}, "n: optional long, rows: .*n: optional string"),
        ({"n": [1], "more": [True]}, "more columns: more"),
    ],
)
def test_rows_that_do_not_fit_an_iceberg_table_are_refused_with_its_name(
    tmp_path: Path, columns: dict[str, list[Any]], said: str
) -> None:
    options = iceberg(tmp_path)
    written = [iceberg_sink.write_data(options, task(0), rows(1))]
    iceberg_sink.add_snapshot(options, 0, written, {})
    others = iter(pa.table(columns).to_batches())
    written = [iceberg_sink.write_data(options, task(1), others)]
    with pytest.raises(RowError, match=f"table shop.orders: .*{said}.*: select .* or ") as refused:
        iceberg_sink.add_snapshot(options, 1, written, {})
    assert "\n" not in str(refused.value)


def test_the_offsets_of_a_batch_come_from_the_checkpoint() -> None:
    lines = [
        "v1",
        '{"batchWatermarkMs":0}',
        '{"orders":{"0":5,"1":7},"$ottla":{"ids":{"orders":"x"}}}',
        '{"logOffset":3}',
        "-",
        '{"payments":{"0":9},"$ottla":{"ids":{"payments":"y"}}}',
    ]
    assert merged("\n".join(lines)) == {"orders": {"0": 5, "1": 7}, "payments": {"0": 9}}


@pytest.mark.parametrize(
    ("parse", "options", "says"),
    [
        (parse_parquet_options, {}, "option path is missing"),
        (parse_parquet_options, {"path": "x", "compression": "rar"}, "option compression"),
        (parse_parquet_options, {"path": "x", "mode": "y"}, "no option 'mode'"),
        (parse_iceberg_options, {"catalog.type": "sql"}, "option table is missing"),
        (parse_iceberg_options, {"table": "a.b"}, "catalog"),
        (parse_iceberg_options, {"table": "a.b", "catalog.type": "s", "x": "y"}, "no option 'x'"),
        (parse_parquet_options, {"path": "x"}, "checkpointLocation is missing.*session"),
        (parse_iceberg_options, {"table": "a.b", "catalog.type": "s"}, "checkpointLocation is"),
    ],
)
def test_options_are_taken_or_refused_by_name(
    parse: Callable[[dict[str, str]], Any], options: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        parse(options)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_places_have_hadoops_names_too(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def from_uri(uri: str) -> tuple[Any, str]:
        asked.append(uri)
        return None, "bucket/path"

    monkeypatch.setattr(
        places, "pafs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri))
    )
    assert places.files_at(f"{scheme}://bucket/path") == (None, "bucket/path")
    assert asked == ["s3://bucket/path"]


def test_two_writers_of_one_file_are_told_apart(tmp_path: Path) -> None:
    place = Place(str(tmp_path / str(uuid.uuid4())))
    assert place.create("a/b", b"first")
    assert not place.create("a/b", b"second")
    assert place.read("a/b") == b"first"
