"""For definitions of a pipeline: a topic of JSON or Avro as a view, its bad records beside it.

    from ottla.spark.topics import json_topic

    json_topic("orders", topic="order-events", schema="id STRING, amount DOUBLE")

defines the view `orders` of what decodes, and a flow of what does not into the dead-letter topic of
the pipeline. Works under `ottla pipeline run` and under `spark-pipelines` alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.spark import decode, defaults
from ottla.spark.errors import OptionError


def json_topic(
    name: str,
    *,
    topic: str,
    schema: str,
    options: Mapping[str, str] | None = None,
    dead_letters: str | None = None,
    bytes_max: int = decode.BYTES_MAX,
) -> None:
    """`options` are those of the source; `dead_letters` is a topic, the pipeline's by default."""
    _define(
        name,
        lambda df: decode.decode_json(df, schema, bytes_max=bytes_max),
        {"startingOffsets": "earliest", **(options or {}), "subscribe": topic},
        dead_letters,
    )


def avro_topic(
    name: str,
    *,
    topic: str,
    schema: str,
    columns: str,
    confluent: bool = False,
    options: Mapping[str, str] | None = None,
    dead_letters: str | None = None,
    bytes_max: int = decode.BYTES_MAX,
) -> None:
    """`schema` is Avro's JSON, `columns` what to make of it, as in SQL."""
    _define(
        name,
        lambda df: decode.decode_avro(
            df, schema, columns, confluent=confluent, bytes_max=bytes_max
        ),
        {"startingOffsets": "earliest", **(options or {}), "subscribe": topic},
        dead_letters,
    )


def _define(
    name: str,
    decoded: Callable[[Any], Any],
    options: Mapping[str, str],
    dead_letters: str | None,
) -> None:
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession

    target = defaults.dead_letters() if dead_letters is None else dead_letters
    if not target:
        raise OptionError(
            f"{name}: where do records go that cannot be decoded? Set dead_letters in ottla.yml, "
            f"the environment variable {defaults.DEAD_LETTERS}, or the argument dead_letters"
        )

    def read() -> Any:
        spark = SparkSession.active()
        return decoded(spark.readStream.format("ottla").options(**options).load())

    def good() -> Any:
        return decode.well_formed(read())

    def bad() -> Any:
        return decode.dead_letters(read())

    dp.temporary_view(name=name)(good)
    sink = f"{name}_dead_letters"
    servers = {key: value for key, value in options.items() if key.startswith("kafka.")}
    dp.create_sink(sink, "ottla", {**servers, "topic": target})
    dp.append_flow(target=sink, name=sink)(bad)
