"""Columns as SQL writes them, `id STRING, tags ARRAY<STRING>`, as Spark's types. Pure.

Spark parses such text in the JVM only, and its own pipelines let nobody ask it while flows are
defined. So this does, for the types that have a counterpart in Avro and JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|\w+|[<>(),:])", re.DOTALL)
_DECIMAL_DEFAULT = (10, 0)
_DEPTH_MAX = 64


def parse_columns(text: str) -> StructType:
    """Raises OptionError that shows where the text cannot be understood."""
    return _Parser(text).columns()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0

    def columns(self) -> StructType:
        found = self._fields()
        if self._peek():
            raise self._wrong("the end or a comma")
        return found

    def _split(self, text: str) -> list[tuple[str, int]]:
        tokens, position = [], 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise OptionError(f"columns {text!r}: {text[position:].strip()!r} is no type")
            tokens.append((match.group(1), match.start(1)))
            position = match.end()
        return tokens

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _takes(self, *words: str) -> bool:
        """Whether these come next; if so, they are passed by."""
        found = [token.upper() for token, _ in self._tokens[self._next :][: len(words)]]
        if found != list(words):
            return False
        self._next += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._wrong(f"{word!r}")

    def _wrong(self, wanted: str) -> OptionError:
        at = self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)
        rest = self._text[at:]
        return OptionError(f"columns {self._text!r}: {wanted} is wanted before {rest!r}")

    def _fields(self) -> StructType:
        from pyspark.sql.types import StructType

        fields = StructType()
        while True:
            name = self._name()
            self._takes(":")
            kind = self._type()
            is_nullable = not self._takes("NOT", "NULL")
            metadata = {"comment": self._text_of(self._take())} if self._takes("COMMENT") else None
            fields.add(name, kind, is_nullable, metadata)
            if not self._takes(","):
                return fields

    def _name(self) -> str:
        token = self._peek()
        if token.startswith("`"):
            self._next += 1
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._wrong("a name")
        return self._take()

    def _text_of(self, token: str) -> str:
        if not token.startswith("'"):
            self._next -= 1
            raise self._wrong("a text in quotes")
        return re.sub(r"\\(.)|'(')", r"\1\2", token[1:-1])

    def _type(self) -> DataType:
        from pyspark.sql import types

        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise OptionError(f"columns are nested more than {_DEPTH_MAX} deep")
        made: dict[str, Callable[[], DataType]] = {
            "ARRAY": lambda: types.ArrayType(*self._inside(self._type)),
            "MAP": lambda: types.MapType(*self._inside(self._type, self._type)),
            "STRUCT": self._struct,
            **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), self._decimal),
            **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), self._text_of_length),
        }
        word = self._peek().upper()
        if word in made:
            self._next += 1
            found = made[word]()
        elif word in _SIMPLE:
            self._next += 1
            found = getattr(types, _SIMPLE[word])()
        else:
            raise self._wrong("a type")
        self._depth -= 1
        return found

    def _inside(self, *parts: Callable[[], Any]) -> list[Any]:
        self._expect("<")
        found = []
        for number, part in enumerate(parts):
            if number:
                self._expect(",")
            found.append(part())
        self._expect(">")
        return found

    def _struct(self) -> DataType:
        from pyspark.sql.types import StructType

        self._expect("<")
        found = StructType() if self._peek() == ">" else self._fields()
        self._expect(">")
        return found

    def _decimal(self) -> DataType:
        from pyspark.sql.types import DecimalType

        given = self._numbers()
        if len(given) > 2:
            raise self._wrong("a precision and a scale")
        return DecimalType(*given, *_DECIMAL_DEFAULT[len(given) :])

    def _text_of_length(self) -> DataType:
        """Its length is not looked at: what is decoded is as long as it is."""
        from pyspark.sql.types import StringType

        if len(self._numbers()) != 1:
            raise self._wrong("a length")
        return StringType()

    def _numbers(self) -> list[int]:
        found: list[int] = []
        if self._takes("("):
            while True:
                if not self._peek().isdecimal():
                    raise self._wrong("a number")
                found.append(int(self._take()))
                if not self._takes(","):
                    break
            self._expect(")")
        return found


_SIMPLE = {
    "BIGINT": "LongType",
    "BINARY": "BinaryType",
    "BOOLEAN": "BooleanType",
    "BYTE": "ByteType",
    "DATE": "DateType",
    "DOUBLE": "DoubleType",
    "FLOAT": "FloatType",
    "INT": "IntegerType",
    "INTEGER": "IntegerType",
    "LONG": "LongType",
    "REAL": "FloatType",
    "SHORT": "ShortType",
    "SMALLINT": "ShortType",
    "STRING": "StringType",
    "TIMESTAMP": "TimestampType",
    "TIMESTAMP_LTZ": "TimestampType",
    "TIMESTAMP_NTZ": "TimestampNTZType",
    "TINYINT": "ByteType",
}
