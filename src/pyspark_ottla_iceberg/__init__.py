"""Lets Spark find the format `ottla-iceberg` by itself; see pyspark_ottla."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from ottla.spark.shipped import Shipped


class DefaultSource(Shipped, DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-iceberg"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.tables.iceberg_sink import IcebergStreamWriter, parse_iceberg_options

        return IcebergStreamWriter(parse_iceberg_options(self.options))
