"""Bytes of records as typed columns, and what becomes of those that cannot be read.

`decode_json` and `decode_avro` add two columns to a DataFrame of the source: `data`, and `error`
where there is none. `well_formed` and `dead_letters` are the two halves of it. Nothing fails
because of one record, and nothing is dropped without a word: what does not decode has its reason.

Spark's own pipelines let no flow ask what columns there are, nor have a schema parsed: that of JSON
goes on as it is written, that of Avro is parsed here, and Python has the values alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ottla.spark.column_types import parse_columns

if TYPE_CHECKING:
    import pyarrow as pa

# A value above this is not decoded: one record must not cost a task its memory.
BYTES_MAX = 1_048_576

_BROKEN = "_ottla_broken"
_ERROR_BYTES_MAX = 500

# As Kafka Connect names them, so that its tools and readers know what they see.
HEADER_TOPIC = "__connect.errors.topic"
HEADER_PARTITION = "__connect.errors.partition"
HEADER_OFFSET = "__connect.errors.offset"
HEADER_STAGE = "__connect.errors.stage"
HEADER_MESSAGE = "__connect.errors.exception.message"

# The columns in which `well_formed` keeps where a row came from.
ORIGIN = {HEADER_TOPIC: "_topic", HEADER_PARTITION: "_partition", HEADER_OFFSET: "_offset"}


def decode_json(df: Any, schema: str, *, bytes_max: int = BYTES_MAX) -> Any:
    """`schema` as in SQL: "id STRING, amount DOUBLE". A field that does not fit its type is an
    error; one that is missing is null, one that is not in the schema is left out."""
    from pyspark.sql import functions as F

    broken = f"{_BROKEN} STRING"
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    # Spark reads one value and passes over whatever stands behind it: within a list there is no
    # behind, and what is no list of one is seen.
    parsed = F.from_json(
        F.concat(F.lit('{"v":['), text, F.lit("]}")),
        f"v ARRAY<STRUCT<{schema}>>, {broken}",
        options,
    )
    # Unless it ends the list itself; what does that cannot stand where there is none.
    alone = F.from_json(F.concat(F.lit('{"v":'), text, F.lit("}")), broken, options)
    size = F.length("value")
    error = (
        F.when(F.col("value").isNull(), F.lit("there is no value"))
        .when(size > bytes_max, _too_large(size, bytes_max))
        .when(
            F.col(f"_parsed.{_BROKEN}").isNotNull(),
            F.lit(f"this is no JSON of {schema}"),
        )
        .when(F.size("_parsed.v") > 1, F.lit("there is more than one JSON object"))
        .when(F.get("_parsed.v", 0).isNull(), F.lit("this is no JSON object"))
        .when(
            F.contains(text, F.lit("]")) & alone[_BROKEN].isNotNull(),
            F.lit(f"this is no JSON of {schema}"),
        )
    )
    is_small = F.col("value").isNotNull() & (size <= bytes_max)
    return (
        df.withColumn("_parsed", F.when(is_small, parsed))
        .withColumn("error", error)
        .withColumn("data", F.when(F.col("error").isNull(), F.get("_parsed.v", 0)))
        .drop("_parsed")
    )


def decode_avro(
    df: Any, schema: str, spark_schema: str, *, confluent: bool = False, bytes_max: int = BYTES_MAX
) -> Any:
    """`schema` is Avro's own JSON, `spark_schema` the columns to make of it, as in SQL.
    `confluent`: values begin with five bytes that name the schema in a registry."""
    from pyspark.sql import functions as F

    decoded, found = avro_function(schema, spark_schema, confluent=confluent, bytes_max=bytes_max)
    # Said to depend on chance, lest the halves of a query each decode every value for themselves.
    once = F.arrow_udf(decoded, found).asNondeterministic()
    return (
        df.withColumn("_decoded", once("value"))
        .withColumn("data", F.col("_decoded.data"))
        .withColumn("error", F.col("_decoded.error"))
        .drop("_decoded")
    )


def avro_function(
    schema: str, spark_schema: str, *, confluent: bool, bytes_max: int
) -> tuple[Any, Any]:
    """What Spark calls with columns of values, and the type that it answers with."""
    import pyarrow as pa
    from pyspark.cloudpickle import register_pickle_by_value
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructType

    # Where Spark has Ottla from its client alone, tasks of a stream cannot import it.
    register_pickle_by_value(sys.modules[__name__])
    columns = parse_columns(spark_schema)
    found = StructType().add("data", columns).add("error", StringType())
    decoder = AvroDecoder(schema, to_arrow_type(columns, timezone="UTC"), confluent, bytes_max)

    def decoded(values: pa.Array) -> pa.Array:
        return decoder.decoded(values)

    # Spark reads no text here, which this module's annotations are.
    decoded.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return decoded, found


class AvroDecoder:
    """Runs in the tasks, on Arrow columns: fastavro for each value."""

    def __init__(self, schema: str, arrow: pa.DataType, confluent: bool, bytes_max: int) -> None:
        self.schema = schema
        self.arrow = arrow
        self.confluent = confluent
        self.bytes_max = bytes_max

    def decoded(self, values: pa.Array) -> pa.Array:
        """For each value a pair: what it says, and why it says nothing."""
        import json

        import fastavro
        import pyarrow as pa

        parsed = fastavro.parse_schema(json.loads(self.schema))
        data, errors = [], []
        for value in values.to_pylist():
            found, error = self._decoded(value, parsed)
            if error is None:
                found, error = self._fitting(found)
            data.append(found)
            errors.append(error)
        columns = [pa.array(data, self.arrow), pa.array(errors, pa.string())]
        return pa.StructArray.from_arrays(columns, names=["data", "error"])

    def _fitting(self, found: Any) -> tuple[Any, str | None]:
        """Avro that is well formed may still not be of the columns that are wanted."""
        import pyarrow as pa

        try:
            pa.array([found], self.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as wrong:
            return None, f"this does not fit the columns: {wrong}"[:_ERROR_BYTES_MAX]
        return found, None

    def _decoded(self, value: bytes | None, schema: Any) -> tuple[Any, str | None]:
        import io

        import fastavro

        if value is None:
            return None, "there is no value"
        if len(value) > self.bytes_max:
            return None, f"{len(value)} bytes are more than {self.bytes_max}"
        if self.confluent:
            if len(value) < 5 or value[0] != 0:
                return None, "the value does not begin with a schema's number, as a registry has it"
            value = value[5:]
        stream = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, schema)
        except Exception as wrong:  # noqa: BLE001 (garbage makes fastavro raise whatever it meets)
            return None, f"this is no Avro of the schema: {wrong!r}"[:_ERROR_BYTES_MAX]
        if stream.tell() != len(value):
            return None, f"{len(value) - stream.tell()} bytes are left behind the record"
        return found, None


def well_formed(df: Any) -> Any:
    """The rows without an error: the columns of `data`, and where each came from."""
    good = df.where("error IS NULL")
    return good.selectExpr(
        "data.*",
        "topic AS _topic",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
    )


def dead_letters(df: Any, stage: str = "decode") -> Any:
    """The rows with an error, as records for a dead-letter topic: key and value as they came, and
    in headers where they came from and what is wrong."""
    from pyspark.sql import functions as F

    def header(name: str, value: Any) -> Any:
        return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))

    return df.where("error IS NOT NULL").select(
        "key",
        "value",
        F.array(
            header(HEADER_TOPIC, F.col("topic")),
            header(HEADER_PARTITION, F.col("partition").cast("string")),
            header(HEADER_OFFSET, F.col("offset").cast("string")),
            header(HEADER_STAGE, F.lit(stage)),
            header(HEADER_MESSAGE, F.col("error")),
        ).alias("headers"),
    )


def _too_large(size: Any, bytes_max: int) -> Any:
    from pyspark.sql import functions as F

    return F.concat(size.cast("string"), F.lit(f" bytes are more than {bytes_max}"))
