"""Fetched keys and values lie in memory without huge pages, unless somebody has chosen a pool."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from ottla.client.columns.memory import table_memory
from ottla.client.columns.table import take_fields
from ottla.records.columns import FieldColumn

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def arrows_own_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    yield
    pa.set_memory_pool(before)


def taken_from(pool: pa.MemoryPool) -> bool:
    """Whether a column of a MiB is made in this pool."""
    before = pool.bytes_allocated()
    field = FieldColumn(np.array([2, SIZE + 4]), np.array([SIZE, 3]))
    column = take_fields(bytes(SIZE + 10), field)
    assert column.nbytes >= SIZE
    return bool(pool.bytes_allocated() - before >= SIZE)


def test_huge_pages_are_left_alone() -> None:
    assert taken_from(pa.jemalloc_memory_pool())


def test_a_pool_that_the_program_has_set_is_kept() -> None:
    pa.set_memory_pool(pa.system_memory_pool())
    assert taken_from(pa.system_memory_pool())


def test_a_pool_that_the_environment_names_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    assert table_memory() is None
    assert taken_from(pa.mimalloc_memory_pool())
