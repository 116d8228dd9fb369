"""Rows as records: which topic and which partition a row may name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.spark.errors import RowError
from ottla.spark.rows_to_records import placed, topics_of


def placed_in(partitions: list[int | None], count: int = 2) -> list[int]:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"v"] * len(partitions), pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
        }
    )
    (rows,) = topics_of(batch, "t", 0)
    return [int(one) for one in placed(rows, count, 0)]


def test_a_row_goes_where_it_says_or_anywhere() -> None:
    assert placed_in([1, 0, 1]) == [1, 0, 1]
    assert placed_in([1, None])[0] == 1


@pytest.mark.parametrize("partition", [-1, -2, 2])
def test_a_partition_that_cannot_be_is_refused_by_its_number(partition: int) -> None:
    with pytest.raises(RowError, match=f"names partition {partition}"):
        placed_in([0, partition, None])


def test_the_topic_of_decisions_is_for_no_rows() -> None:
    """A row there, under the name of a sink, would be taken for what that sink has decided."""
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"v", b"v"], pa.binary()), "topic": pa.array(["t", "__ottla_sinks"])}
    )
    with pytest.raises(RowError, match=r"topic __ottla_sinks .* another"):
        list(topics_of(batch, "", 0))
