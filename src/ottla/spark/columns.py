"""The columns of the source, as Spark's schema and as Arrow's: one list, so that they agree.

Spark checks the first Arrow batch against its schema to the letter: plain binary and string, and
timestamps in microseconds of UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}


def spark_schema(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {_SPARK_TYPES[name]}" for name in columns)


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types: dict[str, Any] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(header),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])
