"""Lets Spark find the format `ottla-parquet` by itself; see pyspark_ottla."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from ottla.spark.shipped import Shipped


class DefaultSource(Shipped, DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-parquet"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.tables.parquet_sink import ParquetStreamWriter, parse_parquet_options

        return ParquetStreamWriter(parse_parquet_options(self.options))
