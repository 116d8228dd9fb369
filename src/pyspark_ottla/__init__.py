"""Lets Spark find the format `ottla` by itself, with no call of `register`.

At the first use of any Python data source Spark imports every module whose name begins with
`pyspark_` and takes its `DefaultSource`. So this one imports little but Spark, and what it is
asked for on first use.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from ottla.spark.shipped import Shipped


class DefaultSource(Shipped, DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        from ottla.spark.source import schema_of

        return schema_of(self.options)

    def reader(self, schema: Any) -> Any:
        from ottla.spark.source import batch_reader

        return batch_reader(self.options, schema.names)

    def streamReader(self, schema: Any) -> Any:
        from ottla.spark.source import stream_reader

        return stream_reader(self.options, schema.names)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from ottla.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
