"""Values of records as columns, in a session: what does not decode has a reason, not an end."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.types import StructType

from ottla.spark import decode, topics
from ottla.spark.column_types import parse_columns
from ottla.spark.expectations import (
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
)
from ottla.spark.pipeline.graph import Registry

AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}],
}
COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)


def records(spark: Any, *values: bytes | None) -> Any:
    rows = [(None, value, "orders", 0, number, None) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, COLUMNS)


def avro(**fields: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, fields)
    return stream.getvalue()


def errors_of(decoded: Any) -> list[str | None]:
    return [row["error"] for row in decoded.orderBy("offset").collect()]


def test_json_decodes_or_has_a_reason(spark: Any) -> None:
    given = [
        b'{"id":"a","amount":2}',
        b'{"id":"b"}',
        b"no JSON",
        b'{"id":"c","amount":"x"}',
        b'{"id":"' + b"d" * 100 + b'"}',
        None,
    ]
    decoded = decode.decode_json(
        records(spark, *given), "id STRING, amount BIGINT", bytes_max=64
    ).cache()
    good = decode.well_formed(decoded).orderBy("_offset").collect()
    assert [(row["id"], row["amount"], row["_offset"]) for row in good] == [
        ("a", 2, 0),
        ("b", None, 1),
    ]
    reasons = errors_of(decoded)[2:]
    assert reasons[0] == reasons[1] == "this is no JSON of id STRING, amount BIGINT"
    assert reasons[2:] == ["109 bytes are more than 64", "there is no value"]
    letters = decode.dead_letters(decoded).collect()
    assert [row["value"] for row in letters] == given[2:]
    headers = {one["key"]: bytes(one["value"]).decode() for one in letters[0]["headers"]}
    assert headers[decode.HEADER_TOPIC] == "orders"
    assert (headers[decode.HEADER_PARTITION], headers[decode.HEADER_OFFSET]) == ("0", "2")


def test_json_with_more_behind_it_has_a_reason(spark: Any) -> None:
    """Spark reads the first value and is silent about the rest, which would be lost."""
    given = [
        b' {"id":"a","tags":[1,2],"in":{"x":1}} ',
        b'{"id":"b"} {"id":"c"}',
        b'{"id":"b"}\n{"id":"c"}',
        b'{"id":"b"},{"id":"c"}',
        b'{"id":"b"} trash',
        b'[{"id":"b"}]',
        b'{"id":"b","tags":["x"]}',
        b'{"id":"b"}]}',
        b'{"id":"b"}],"v":[{"id":"c"}',
        b"null",
        b" ",
        b"",
    ]
    schema = "id STRING, tags ARRAY<INT>, `in` STRUCT<x: INT>"
    decoded = decode.decode_json(records(spark, *given), schema).cache()
    good = decode.well_formed(decoded).collect()
    assert [(row["id"], row["tags"], row["in"]["x"]) for row in good] == [("a", [1, 2], 1)]
    reasons = errors_of(decoded)
    unfit = f"this is no JSON of {schema}"
    several = "there is more than one JSON object"
    assert reasons[1:7] == [unfit, unfit, several, unfit, unfit, unfit]
    assert reasons[7:9] == [unfit, unfit]
    assert reasons[9:] == ["this is no JSON object"] * 3


def test_flows_ask_nothing_of_spark_while_they_are_defined(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own pipelines refuse a flow that looks at its columns, or has a schema parsed."""
    registry = Registry(spark)
    with graph_element_registration_context(registry):
        topics.json_topic("orders", topic="orders", schema="id STRING", dead_letters="dead")

        @expect_or_quarantine("an id", "id <> ''", dead_letters="dead")
        def clean() -> Any:
            return records(spark).selectExpr("'a' AS id", "topic AS _topic", "7L AS _offset")

    def asked(*given: Any) -> Any:
        raise AssertionError("a flow has asked")

    kinds = {}
    with monkeypatch.context() as asking:
        asking.setattr(StructType, "fromDDL", asked)
        for kind in ("columns", "schema"):
            asking.setattr(DataFrame, kind, property(asked))
        for flow in registry.graph.flows:
            kinds[flow.name] = flow.query()
    assert kinds.pop("orders").columns == ["id", "_topic", "_partition", "_offset", "_timestamp"]
    assert [one.columns[-2:] for one in kinds.values()] == [["value", "headers"]] * 2


def test_rows_in_quarantine_say_where_they_came_from(spark: Any) -> None:
    registry = Registry(spark)
    with graph_element_registration_context(registry):

        @expect_or_quarantine("an id", "id <> 'b'", dead_letters="dead")
        def clean() -> Any:
            return spark.sql("SELECT 'b' AS id, 'orders' AS _topic, 7L AS _offset")

    (row,) = registry.graph.flows[0].query().collect()
    assert json.loads(row["value"]) == {"id": "b", "_topic": "orders", "_offset": 7}
    headers = {one["key"]: bytes(one["value"]).decode() for one in row["headers"]}
    assert headers == {
        decode.HEADER_TOPIC: "orders",
        decode.HEADER_OFFSET: "7",
        decode.HEADER_STAGE: "expectation",
        decode.HEADER_MESSAGE: "an id: id <> 'b' is not met",
    }


@pytest.mark.parametrize("confluent", [False, True])
def test_avro_decodes_or_has_a_reason(spark: Any, confluent: bool) -> None:
    prefix = b"\0\0\0\0\7" if confluent else b""
    given = [
        prefix + avro(id="a", amount=2),
        prefix + avro(id="b", amount=1 << 40),
        prefix + avro(id="c", amount=3) + b"more",
        b"\xff\xff",
        None,
    ]
    decoded = decode.decode_avro(
        records(spark, *given), json.dumps(AVRO), "id STRING, amount INT", confluent=confluent
    ).cache()
    good = decode.well_formed(decoded).collect()
    assert [(row["id"], row["amount"]) for row in good] == [("a", 2)]
    reasons = errors_of(decoded)
    assert reasons[0] is None
    assert "does not fit the columns" in str(reasons[1])
    assert "4 bytes are left behind the record" in str(reasons[2])
    assert reasons[3] is not None
    assert reasons[4] == "there is no value"


@pytest.mark.parametrize(
    "text",
    [
        "a INT, `b c` STRING, `d``e` BIGINT",
        "a struct<b: int, c struct<d: double>> not null comment 'it''s', e binary",
        r"a tinyint, b smallint comment 'with \' in it', c float, d boolean, e date",
        "a TIMESTAMP, b TIMESTAMP_NTZ, c TIMESTAMP_LTZ, d DECIMAL, e DEC(5), f NUMERIC(7,3)",
        "a MAP<STRING, ARRAY<INT>>,b array<map<int,string>>",
        "a STRUCT<>, b byte, c short, d long, e integer, f real",
    ],
)
def test_columns_mean_what_they_mean_to_spark(spark: Any, text: str) -> None:
    assert parse_columns(text) == StructType.fromDDL(text)


def test_expectations_keep_drop_or_fail(spark: Any) -> None:
    def numbers() -> Any:
        return spark.range(5)

    assert expect("small", "id < 3")(numbers)().count() == 5
    assert expect_or_drop("small", "id < 3")(numbers)().count() == 3
    assert expect_or_drop("nothing", "CAST(NULL AS BOOLEAN)")(numbers)().count() == 0
    assert expect_or_fail("small", "id < 9")(numbers)().count() == 5
    with pytest.raises(Exception, match=r"expectation 'small' .* is not met by .*3"):
        expect_or_fail("small", "id < 3")(numbers)().collect()
