"""Which datasets and flows the SQL of a project defines."""

from __future__ import annotations

import pytest

from ottla.spark.pipeline.project import ProjectError
from ottla.spark.pipeline.sql_files import Statement, split, statements_of


def one(text: str) -> Statement:
    (found,) = statements_of(text, "a.sql")
    return found


def test_statements_end_where_they_end() -> None:
    text = """
    -- a comment; with a semicolon
    CREATE MATERIALIZED VIEW a AS SELECT ';' AS x /* ; */ FROM b;
    CREATE TEMPORARY VIEW c AS SELECT 'it''s;' AS y, "d;e", `f;g`, '\\';' FROM b
    """
    assert len(split(text)) == 2
    assert split(" ;; ") == []


@pytest.mark.parametrize(
    ("text", "kind", "query"),
    [
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "view", "SELECT 1"),
        (
            "create or refresh streaming table v as select * from stream t",
            "table",
            "select * from stream t",
        ),
        ("CREATE TEMPORARY VIEW v AS\nSELECT\n1", "temporary", "SELECT\n1"),
        ("CREATE STREAMING TABLE v", "table", ""),
        ("CREATE STREAMING TABLE IF NOT EXISTS v AS SELECT 1", "table", "SELECT 1"),
    ],
)
def test_datasets(text: str, kind: str, query: str) -> None:
    found = one(text)
    assert (found.kind, found.name, found.target, found.query) == (kind, "v", "v", query)


def test_what_stands_between_a_name_and_its_query() -> None:
    found = one(
        "CREATE STREAMING TABLE `v` USING orc PARTITIONED BY (a, b) COMMENT 'as it is' "
        "TBLPROPERTIES ('x' = 'y') AS SELECT 1 AS a, 2 AS b"
    )
    assert (found.name, found.format, found.partitions) == ("v", "orc", ("a", "b"))
    assert found.query == "SELECT 1 AS a, 2 AS b"


def test_a_flow_into_a_table() -> None:
    found = one("CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM s")
    assert found == Statement("flow", "f", "t", "SELECT * FROM STREAM s")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT 1", "'SELECT 1' defines no streaming table"),
        ("CREATE TABLE t AS SELECT 1", "defines no streaming table"),
        ("CREATE MATERIALIZED VIEW v", "v: expected AS"),
        ("CREATE MATERIALIZED VIEW v CLUSTER BY (a) AS SELECT 1", "v: expected AS, found 'CLUSTER"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_first_words(text: str, says: str) -> None:
    with pytest.raises(ProjectError, match=says):
        one(text)
