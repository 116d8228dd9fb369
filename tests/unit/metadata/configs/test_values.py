"""Goal: texts become values and values texts exactly as in Kafka.
Method: a table of what Kafka 4.3.1 made of the same texts, and the round trip over random values.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ConfigError
from ottla.metadata.configs import values
from ottla.metadata.configs.values import ConfigValue, parse, render

TAKEN = [
    (values.LONG, " 5 ", 5, "5"),
    (values.LONG, "+5", 5, "5"),
    (values.LONG, "07", 7, "7"),
    (values.LONG, "-9223372036854775808", -(2**63), "-9223372036854775808"),
    (values.INT, "2147483647", 2**31 - 1, "2147483647"),
    (values.SHORT, "\t32767\n", 2**15 - 1, "32767"),
    (values.BOOLEAN, " TRUE ", True, "true"),
    (values.BOOLEAN, "false", False, "false"),
    (values.DOUBLE, "1", 1.0, "1.0"),
    (values.DOUBLE, "0.5d", 0.5, "0.5"),
    (values.DOUBLE, ".25", 0.25, "0.25"),
    (values.DOUBLE, "1e-5", 1e-5, "1.0E-5"),
    (values.DOUBLE, "0.001", 0.001, "0.001"),
    (values.DOUBLE, "0.0009", 0.0009, "9.0E-4"),
    (values.DOUBLE, "9999999", 9999999.0, "9999999.0"),
    (values.DOUBLE, "10000000", 1e7, "1.0E7"),
    (values.DOUBLE, "12345678", 12345678.0, "1.2345678E7"),
    (values.DOUBLE, "-2147483648", -2147483648.0, "-2.147483648E9"),
    (values.DOUBLE, "1e400", float("inf"), "Infinity"),
    (values.DOUBLE, "-Infinity", float("-inf"), "-Infinity"),
    (values.DOUBLE, "0", 0.0, "0.0"),
    (values.DOUBLE, "1.7976931348623157E308", values.DOUBLE_MAX, "1.7976931348623157E308"),
    (values.LIST, "", (), ""),
    (values.LIST, "  ", (), ""),
    (values.LIST, "a, b ,a", ("a", "b"), "a,b"),
    (values.LIST, "a,,b", ("a", "", "b"), "a,,b"),
    (values.STRING, " x y ", "x y", "x y"),
    (values.CLASS, " a.B ", "a.B", "a.B"),
    (values.PASSWORD, " p ", " p ", " p "),
]


@pytest.mark.parametrize(("kind", "text", "value", "shown"), TAKEN)
def test_taken(kind: int, text: str, value: ConfigValue, shown: str) -> None:
    parsed = parse("a.b", kind, text)
    assert (parsed, type(parsed)) == (value, type(value))
    assert render(kind, parsed) == shown


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (values.LONG, "soon", "Not a number of type LONG"),
        (values.LONG, "", "Not a number of type LONG"),
        (values.LONG, "1.0", "Not a number of type LONG"),
        (values.LONG, "1_000", "Not a number of type LONG"),
        (values.LONG, "0x10", "Not a number of type LONG"),
        (values.LONG, "٣", "Not a number of type LONG"),
        (values.LONG, "9223372036854775808", "Not a number of type LONG"),
        (values.LONG, "9" * 5000, "Not a number of type LONG"),
        (values.INT, "2147483648", "Not a number of type INT"),
        (values.INT, "-2147483649", "Not a number of type INT"),
        (values.SHORT, "32768", "Not a number of type SHORT"),
        (values.DOUBLE, "x", "Not a number of type DOUBLE"),
        (values.DOUBLE, "nan", "Not a number of type DOUBLE"),
        (values.DOUBLE, "NaN", "Not a number of type DOUBLE"),
        (values.DOUBLE, "", "Not a number of type DOUBLE"),
        (values.DOUBLE, "1L", "Not a number of type DOUBLE"),
        (values.BOOLEAN, "yes", "Expected value to be either true or false"),
        (values.BOOLEAN, "1", "Expected value to be either true or false"),
        (values.BOOLEAN, " 7 ", "Expected value to be either true or false"),
    ],
)
def test_refused(kind: int, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse("a.b", kind, text)
    assert str(refused.value) == f"Invalid value {text} for configuration a.b: {reason}"


def test_nothing_is_shown_as_nothing() -> None:
    assert render(values.STRING, None) is None


@given(st.floats(allow_nan=False))
def test_a_double_survives_its_text(number: float) -> None:
    assert parse("a.b", values.DOUBLE, str(render(values.DOUBLE, number))) == number


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_survives_its_text(number: int) -> None:
    assert parse("a.b", values.LONG, str(render(values.LONG, number))) == number


@given(st.lists(st.text("abc.", min_size=1), unique=True).map(tuple))
def test_a_list_survives_its_text(items: tuple[str, ...]) -> None:
    assert parse("a.b", values.LIST, str(render(values.LIST, items))) == items
