"""The data source itself: what Spark finds under the name `ottla`.

Spark makes one in the driver, pickles it, and asks it for readers and writers, a writer for each
batch anew; so it only checks options and hands them on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from ottla.spark import no_effect
from ottla.spark.columns import spark_schema
from ottla.spark.defaults import completed_for_reading
from ottla.spark.errors import OptionError
from ottla.spark.source_options import (
    BATCH,
    STREAM,
    SourceOptions,
    columns_of,
    mode_of,
    parse_source_options,
)
from ottla.spark.wire import consumer_settings

if TYPE_CHECKING:
    from ottla.spark.cluster_view import ClusterView

_ANYWHERE = "127.0.0.1:9092"


def schema_of(options: Mapping[str, str]) -> str:
    """Spark asks for it in `load`, where a mistake is told at once: a stream whose reader refuses
    its options has started by then, and dies in the background."""
    columns = columns_of(options)
    # Which brokers is the reader's to ask: a definition may be looked at without any.
    given = {"kafka.bootstrap.servers": _ANYWHERE, **completed_for_reading(options)}
    parsed = parse_source_options(given, mode_of(options))
    consumer_settings(parsed.client)
    return spark_schema(columns)


def batch_reader(options: Mapping[str, str], schema: list[str]) -> DataSourceReader:
    from ottla.spark.batch_reader import FilteringBatchReader, OttlaBatchReader

    parsed = parse_source_options(completed_for_reading(options), BATCH)
    consumer_settings(parsed.client)
    no_effect.tell(parsed.client, no_effect.READING)
    _refuse_own_schema(parsed, schema)
    kind = FilteringBatchReader if parsed.push_filters else OttlaBatchReader
    return kind(parsed, open_view)


def stream_reader(options: Mapping[str, str], schema: list[str]) -> DataSourceStreamReader:
    from ottla.spark.stream_reader import OttlaStreamReader

    parsed = parse_source_options(completed_for_reading(options), STREAM)
    consumer_settings(parsed.client)
    no_effect.tell(parsed.client, no_effect.READING)
    _refuse_own_schema(parsed, schema)
    return OttlaStreamReader(parsed, open_view)


def open_view(options: SourceOptions) -> ClusterView:
    from ottla.spark.client_view import ClientView

    return ClientView(options.client)


def _refuse_own_schema(options: SourceOptions, schema: list[str]) -> None:
    if tuple(schema) != options.columns:
        raise OptionError(
            "the source has a schema of its own: remove .schema(...), and choose columns with the "
            "option columns"
        )
