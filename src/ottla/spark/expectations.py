"""What rows must be like: decorators for the functions that define datasets of a pipeline.

    @dp.table
    @expect_or_drop("an amount", "amount > 0")
    def clean_orders():
        return spark.readStream.table("orders")

Each counts the rows it has seen and those that did not meet it (`ottla pipeline status`). `expect`
keeps them, `expect_or_drop` leaves them out, `expect_or_fail` fails the query with the row in its
message, `expect_or_quarantine` sends them to the dead-letter topic. A condition that is null is not
met. The order of decorators is from the function outwards.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from ottla.spark import defaults
from ottla.spark.decode import HEADER_MESSAGE, HEADER_STAGE, ORIGIN
from ottla.spark.errors import OptionError

Query = Callable[[], Any]


def expect(name: str, condition: str) -> Callable[[Query], Query]:
    return _wrapping(name, condition, lambda df, met: df)


def expect_or_drop(name: str, condition: str) -> Callable[[Query], Query]:
    return _wrapping(name, condition, lambda df, met: df.where(met))


def expect_or_fail(name: str, condition: str) -> Callable[[Query], Query]:
    def check(df: Any, met: Any) -> Any:
        from pyspark.sql import functions as F

        told = F.concat(
            F.lit(f"expectation {name!r} ({condition}) is not met by "),
            F.to_json(F.struct("*")),
        )
        return df.where(F.when(met, F.lit(True)).otherwise(F.raise_error(told).cast("boolean")))

    return _wrapping(name, condition, check)


def expect_or_quarantine(
    name: str, condition: str, *, dead_letters: str | None = None
) -> Callable[[Query], Query]:
    """`dead_letters` is a topic, the pipeline's by default. Rows go there as JSON."""

    def decorate(query: Query) -> Query:
        _define_quarantine(query, name, condition, dead_letters)
        return _wrapping(name, condition, lambda df, met: df.where(met))(query)

    return decorate


def _wrapping(
    name: str, condition: str, apply: Callable[[Any, Any], Any]
) -> Callable[[Query], Query]:
    def decorate(query: Query) -> Query:
        @functools.wraps(query)
        def checked() -> Any:
            df = query()
            met = _met(condition)
            return apply(_counted(df, name, met), met)

        return checked

    return decorate


def _met(condition: str) -> Any:
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))


def _counted(df: Any, name: str, met: Any) -> Any:
    from pyspark.sql import functions as F

    return df.observe(
        re.sub(r"\W+", "_", name),
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.when(met, 0).otherwise(1)).alias("unmet"),
    )


def _define_quarantine(query: Query, name: str, condition: str, dead_letters: str | None) -> None:
    from pyspark import pipelines as dp

    target = defaults.dead_letters() if dead_letters is None else dead_letters
    if not target:
        raise OptionError(
            f"expectation {name!r}: where do its rows go? Set dead_letters in ottla.yml, the "
            f"environment variable {defaults.DEAD_LETTERS}, or the argument dead_letters"
        )

    def unmet() -> Any:
        from pyspark.sql import functions as F

        def header(key: str, value: Any) -> Any:
            return F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value"))

        # Where a row came from, if it still knows: a flow may not ask which columns there are.
        origin = [
            header(key, F.get_json_object("value", f"$.{column}")) for key, column in ORIGIN.items()
        ]
        headers = F.array(
            *origin,
            header(HEADER_STAGE, F.lit("expectation")),
            header(HEADER_MESSAGE, F.lit(f"{name}: {condition} is not met")),
        )
        rows = query().where(~_met(condition)).select(F.to_json(F.struct("*")).alias("value"))
        known = F.filter(headers, lambda one: one["value"].isNotNull())
        return rows.withColumn("headers", known)

    label = re.sub(r"\W+", "_", name)
    sink = f"{getattr(query, '__name__', 'rows')}_quarantine_{label}"
    dp.create_sink(sink, "ottla", {"topic": target})
    dp.append_flow(target=sink, name=sink)(unmet)
