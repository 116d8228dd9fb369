from __future__ import annotations

import pytest

from ottla.spark.column_types import parse_columns
from ottla.spark.errors import OptionError


def test_columns_are_told_as_spark_tells_them() -> None:
    found = parse_columns("id STRING, lines ARRAY<STRUCT<sku: STRING, price: DECIMAL(12, 2)>>")
    assert found.simpleString() == (
        "struct<id:string,lines:array<struct<sku:string,price:decimal(12,2)>>>"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a name is wanted before ''"),
        ("id", "a type is wanted before ''"),
        ("id STRING amount INT", "the end or a comma is wanted before 'amount INT'"),
        ("id TEXT", "a type is wanted before 'TEXT'"),
        ("id ARRAY<INT", "'>' is wanted before ''"),
        ("id MAP<STRING>", "',' is wanted before '>'"),
        ("id DECIMAL(1, 2, 3)", "a precision and a scale"),
        ("id DECIMAL(x)", "a number is wanted before 'x)'"),
        ("id CHAR", "a length"),
        ("id INT,", "a name is wanted before ''"),
        ("id INT; DROP", "'; DROP' is no type"),
        ("id INT COMMENT x", "a text in quotes is wanted before 'x'"),
        ("a " + "ARRAY<" * 100, "nested more than 64 deep"),
    ],
)
def test_what_cannot_be_understood_is_shown(text: str, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_columns(text)
    assert reason in str(caught.value)
