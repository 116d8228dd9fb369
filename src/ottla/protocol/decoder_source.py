"""Compiles a layout into a decoder: one function, all structs inlined, that checks as it reads.

Invariants of the code that comes out:
- no list, string or bytes is made before its count or length was compared with the bytes left;
- elements and tagged fields are taken from one object budget; eight plain numbers count as one;
- the position never moves past the end; in a response it must be exactly there in the end.
Reading a fixed size past the end raises IndexError or struct.error (primitives.MALFORMED).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from ottla.base.errors import MalformedRequest
from ottla.base.ports import Buffer
from ottla.protocol.absent_fields import DefaultStruct
from ottla.protocol.layout import (
    BYTES,
    STRING,
    STRUCT,
    UUID,
    FieldLayout,
    StructLayout,
    element_size_min,
    format_size,
)
from ottla.protocol.primitives import (
    STRING_BYTES_MAX,
    read_long_uvarint,
    read_tag,
    skip_tags,
    uuid_of,
)
from ottla.protocol.source_writer import SourceWriter
from ottla.protocol.struct_classes import Message, absent_fields, default_instance, struct_class

Decoder = Callable[[bytes, int], Message]

_SMALL_ARRAY_MAX = 16


def bad_count(path: str, count: int, bytes_left: int) -> MalformedRequest:
    return MalformedRequest(f"{path}: an array of {count} in {bytes_left} bytes")


def bad_length(path: str, length: int, bytes_left: int) -> MalformedRequest:
    return MalformedRequest(f"{path}: a length of {length}, {bytes_left} bytes are left")


def bad_tag(path: str, tag: int) -> MalformedRequest:
    return MalformedRequest(f"{path}: tag {tag} has not the length that it declares")


def over_budget(path: str) -> MalformedRequest:
    return MalformedRequest(f"{path}: more objects than one message may hold")


def trailing(count: int) -> MalformedRequest:
    return MalformedRequest(f"{count} bytes too many")


@cache
def array_reader(format_character: str) -> Callable[[Buffer, int, int], list[Any]]:
    """Reads `count` numbers; the counts that are common without building a format."""
    small = [
        struct.Struct(f">{count}{format_character}").unpack_from
        for count in range(_SMALL_ARRAY_MAX + 1)
    ]

    def read_array(data: Buffer, position: int, count: int) -> list[Any]:
        if count <= _SMALL_ARRAY_MAX:
            return list(small[count](data, position))
        return list(struct.unpack_from(f">{count}{format_character}", data, position))

    return read_array


def compile_decoder(api_key: int, is_request: bool, layout: StructLayout, title: str) -> Decoder:
    return _DecoderSource(api_key, is_request).compile(layout, title)


class _DecoderSource(SourceWriter):
    def __init__(self, api_key: int, is_request: bool) -> None:
        super().__init__(
            {
                "bad_count": bad_count,
                "bad_length": bad_length,
                "bad_tag": bad_tag,
                "over_budget": over_budget,
                "trailing": trailing,
                "more": read_long_uvarint,
                "read_tag": read_tag,
                "skip_tags": skip_tags,
                "uuid_of": uuid_of,
            }
        )
        self._api_key = api_key
        self._is_request = is_request
        self._is_flexible = False
        self._after_run: list[str] = []

    def compile(self, layout: StructLayout, title: str) -> Decoder:
        self._is_flexible = layout.is_flexible
        with self.block("def decode(data, budget):"):
            self.line("size = len(data)")
            self.line("pos = 0")
            message = self._struct(layout, layout.name)
            self.flush()
            if not self._is_request:
                # Kafka ignores what follows a request, and librdkafka 2.16 counts on it: some of
                # its Metadata v13 requests end in three bytes of nothing.
                self.line("if pos != size: raise trailing(size - pos)")
            self.line(f"return {message}")
        return self.compiled("decode", title)

    def flush(self) -> None:
        if not self.run:
            return
        formats = "".join(kind for kind, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        if formats == "B":
            self.line(f"{targets} = data[pos]")
            self.line("pos += 1")
        else:
            read = struct.Struct(">" + formats)
            self.line(f"{targets}, = {self.constant('read', read.unpack_from)}(data, pos)")
            self.line(f"pos += {read.size}")
        self.run.clear()
        for line in self._after_run:
            self.line(line)
        self._after_run.clear()

    # -- structs ----------------------------------------------------------------------------

    def _struct(self, layout: StructLayout, path: str) -> str:
        names = [field.name for field in layout.all_fields()]
        made = struct_class(self._api_key, self._is_request, layout.name, names)
        variable = self.fresh("v")
        self.line(f"{variable} = {self.constant(layout.name, made)}()")
        absent = absent_fields(self._api_key, self._is_request, layout.name)
        for name, default in absent.items():
            if name not in names:
                self.line(f"{variable}.{name} = {self._default(default)}")
        for field in layout.tagged:
            self.line(f"{variable}.{field.name} = {self._tag_default(field)}")
        for field in layout.fields:
            self._value(field, f"{variable}.{field.name}", f"{path}.{field.name}")
        if self._is_flexible:
            self._tags(layout, variable, path)
        return variable

    def _default(self, default: Any) -> str:
        if default == ():
            return "[]"  # a new list each time: nobody's change may be seen by the next message
        if isinstance(default, DefaultStruct):
            default = default_instance(self._api_key, self._is_request, default)
        return self.constant("default", default)

    def _tag_default(self, field: FieldLayout) -> str:
        default = field.implicit_default()
        if field.struct is not None and not field.is_array and default is not None:
            default = DefaultStruct(field.struct.name, default)
        return self._default(default)

    def _tags(self, layout: StructLayout, variable: str, path: str) -> None:
        self.run.append(("B", "n"))
        with self.block("if n:"):
            if not layout.tagged:
                self.line("pos, n = skip_tags(data, pos - 1, size, budget)")
                self.line("budget -= n")
                return
            self.line("if n > 127: n, pos = more(data, pos, n)")
            self._take("n * 2 > size - pos", "n", path)
            tag, end = self.fresh("tag"), self.fresh("end")
            with self.block("for _ in range(n):"):
                self.line(f"{tag}, pos, {end} = read_tag(data, pos, size)")
                for number, field in enumerate(layout.tagged):
                    with self.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                        self._value(field, f"{variable}.{field.name}", f"{path}.{field.name}")
                with self.block("else:"):
                    self.line(f"pos = {end}")
                self.line(f"if pos != {end}: raise bad_tag({path!r}, {tag})")

    def _take(self, refusal: str, cost: str, path: str) -> None:
        self.line(f"if {refusal}: raise bad_count({path!r}, n, size - pos)")
        self.line(f"budget -= {cost}")
        self.line(f"if budget < 0: raise over_budget({path!r})")

    # -- values -----------------------------------------------------------------------------

    def _value(self, field: FieldLayout, target: str, path: str) -> None:
        if field.is_array:
            self._array(field, target, path)
        elif field.struct is not None:
            self._nested(field, field.struct, target, path)
        elif field.kind in (STRING, BYTES):
            self._sized(field, target, path)
        elif field.kind == UUID:
            encoded = self.fresh("u")
            self.run.append(("16s", encoded))
            self._after_run.append(f"{target} = uuid_of({encoded})")
        else:
            self.run.append((field.kind, target))

    def _nested(self, field: FieldLayout, layout: StructLayout, target: str, path: str) -> None:
        if not field.is_nullable:
            self.line(f"{target} = {self._struct(layout, path)}")
            return
        self.run.append(("b", "n"))  # KIP-893: -1 is null, 1 is not; like Kafka we ask the sign
        with self.block("if n < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            variable = self._struct(layout, path)
            self.line(f"{target} = {variable}")

    def _sized(self, field: FieldLayout, target: str, path: str) -> None:
        """A string or bytes: the length, then so many bytes."""
        is_string = field.kind == STRING
        if self._is_flexible:
            self.run.append(("B", "n"))
            self.flush()
            self.line("if n > 127: n, pos = more(data, pos, n)")
            self.line("n -= 1")
        else:
            self.run.append(("h" if is_string else "i", "n"))
            self.flush()
        if field.is_nullable:
            with self.block("if n == -1:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self._sized_content(target, is_string, path)
        else:
            self._sized_content(target, is_string, path)

    def _sized_content(self, target: str, is_string: bool, path: str) -> None:
        too_long = f" or n > {STRING_BYTES_MAX}" if is_string and self._is_flexible else ""
        decoded = ".decode()" if is_string else ""
        self.line("end = pos + n")
        self.line(f"if n < 0 or end > size{too_long}: raise bad_length({path!r}, n, size - pos)")
        self.line(f"{target} = data[pos:end]{decoded}")
        self.line("pos = end")

    def _array(self, field: FieldLayout, target: str, path: str) -> None:
        if self._is_flexible:
            self.run.append(("B", "n"))
            self.flush()
            self.line("if n > 127: n, pos = more(data, pos, n)")
            self.line("n -= 1")
        else:
            self.run.append(("i", "n"))
            self.flush()
        if field.is_nullable:
            with self.block("if n == -1:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self._elements(field, target, path)
        else:
            self._elements(field, target, path)

    def _elements(self, field: FieldLayout, target: str, path: str) -> None:
        least = element_size_min(field, self._is_flexible)
        is_number = field.kind not in (STRING, BYTES, UUID, STRUCT)
        self._take(f"n < 0 or n * {least} > size - pos", "n >> 3" if is_number else "n", path)
        if is_number:
            read = self.constant("array", array_reader(field.kind))
            self.line(f"{target} = {read}(data, pos, n)")
            self.line(f"pos += n * {format_size(field.kind)}")
            return
        items, add = self.fresh("items"), self.fresh("add")
        self.line(f"{items} = {target} = []")
        self.line(f"{add} = {items}.append")
        with self.block("for _ in range(n):"):
            if field.struct is not None:
                variable = self._struct(field.struct, path)
                self.flush()
            else:
                variable = self.fresh("item")
                element = FieldLayout(field.name, field.kind, False, False, None, False, None, None)
                self._value(element, variable, path)
                self.flush()
            self.line(f"{add}({variable})")
