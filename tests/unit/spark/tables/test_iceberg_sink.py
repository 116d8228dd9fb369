"""Tables that are made by whoever comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from sqlalchemy.exc import IntegrityError

from ottla.spark.tables import iceberg_sink
from ottla.spark.tables.iceberg_sink import IcebergOptions, parse_iceberg_options, table_for

OPTIONS = IcebergOptions("shop.orders", (("type", "sql"),), "checkpoint")


class Catalog:
    """In a database: a task that looks while another writes is told of the other's rows."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    def create_namespace_if_not_exists(self, namespace: str) -> None:
        assert namespace == "shop"
        if self._failures:
            self._failures -= 1
            raise IntegrityError("INSERT", None, Exception("UNIQUE constraint failed"))

    def create_table_if_not_exists(self, name: str, schema: Any) -> str:
        return name


def test_two_tasks_that_make_a_table_at_once_both_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(failures=1)
    monkeypatch.setattr(iceberg_sink, "catalog_of", lambda options: catalog)
    assert table_for(OPTIONS, None) == "shop.orders"


def test_a_database_that_fails_for_good_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(failures=1000)
    monkeypatch.setattr(iceberg_sink, "catalog_of", lambda options: catalog)
    with pytest.raises(IntegrityError, match="UNIQUE constraint"):
        table_for(OPTIONS, None)


@pytest.mark.parametrize("name", ["ottla", "warehouse"])
def test_a_catalog_has_the_name_that_its_other_readers_give_it(tmp_path: Path, name: str) -> None:
    """In a database each table is one of a catalog, and readers of another do not see it."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    given = {f"catalog.{key}": value for key, value in catalog.items()}
    if name != "ottla":
        given["catalog.name"] = name
    options = parse_iceberg_options({**given, "table": "shop.orders", "checkpointLocation": "any"})
    table_for(options, pa.schema([("n", pa.int64())]))
    assert load_catalog(name, **catalog).table_exists("shop.orders")
