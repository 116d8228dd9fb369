"""Compiles a layout into an encoder: one function from nested mappings to bytes.

Values of a fixed size that stand side by side, and the length or count that follows them, are
packed in one call. A tagged field is left out where it has its default, as Kafka does. The encoder
trusts its caller's types no further than struct and str do: what does not fit raises, and the
entrance (`messages`) turns that into InvariantError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ottla.protocol.layout import (
    BYTES,
    STRING,
    STRUCT,
    UUID,
    FieldLayout,
    StructLayout,
)
from ottla.protocol.primitives import (
    NULL_UUID,
    ONE_BYTE,
    STRING_BYTES_MAX,
    tagged_field,
    uuid_bytes,
    uvarint,
)
from ottla.protocol.source_writer import SourceWriter
from ottla.protocol.struct_classes import as_mapping

Encoder = Callable[[Mapping[str, Any]], bytes]

_SMALL_ARRAY_MAX = 16


@cache
def array_packer(format_character: str) -> Callable[[Sequence[Any]], bytes]:
    """Packs numbers; the counts that are common without building a format."""
    small = [
        struct.Struct(f">{count}{format_character}").pack for count in range(_SMALL_ARRAY_MAX + 1)
    ]

    def pack_array(values: Sequence[Any]) -> bytes:
        count = len(values)
        if count <= _SMALL_ARRAY_MAX:
            return small[count](*values)
        return struct.pack(f">{count}{format_character}", *values)

    return pack_array


def compile_encoder(layout: StructLayout, title: str) -> Encoder:
    return _EncoderSource(layout.is_flexible).compile(layout, title)


class _EncoderSource(SourceWriter):
    def __init__(self, is_flexible: bool) -> None:
        super().__init__(
            {
                "NULL_UUID": NULL_UUID,
                "ONE_BYTE": ONE_BYTE,
                "as_mapping": as_mapping,
                "tagged_field": tagged_field,
                "uuid_bytes": uuid_bytes,
                "uvarint": uvarint,
            }
        )
        self._is_flexible = is_flexible
        self._varint = ""  # the variable that ends the run as a varint, if any

    def compile(self, layout: StructLayout, title: str) -> Encoder:
        defaults = self._tag_functions(layout)
        with self.block("def encode(fields):"):
            self.line("out = []")
            self.line("append = out.append")
            self._struct(layout, "fields")
            self.flush()
            self.line("return b''.join(out)")
        encode = self.compiled("encode", title)
        for name, function, default in defaults:
            self.names[name] = self.names[function](default)
        return encode

    def flush(self) -> None:
        varint, self._varint = self._varint, ""
        if not self.run:
            if varint:
                self.line(f"append(ONE_BYTE[{varint}] if {varint} < 128 else uvarint({varint}))")
            return
        formats = ">" + "".join(kind for kind, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.run.clear()
        pack = self.constant("pack", struct.Struct(formats).pack)
        if not varint:
            self.line(f"append({pack}({values}))")
            return
        with_byte = self.constant("pack", struct.Struct(formats + "B").pack)
        self.line(f"if {varint} < 128: append({with_byte}({values}, {varint}))")
        self.line(f"else: append({pack}({values})); append(uvarint({varint}))")

    def _end_run_with(self, legacy_format: str, length: str) -> None:
        """Ends the run with a length or a count."""
        if self._is_flexible:
            self._varint = length
        else:
            self.run.append((legacy_format, length))
        self.flush()

    # -- structs ----------------------------------------------------------------------------

    def _struct(self, layout: StructLayout, variable: str) -> None:
        self.line(f"if {variable}.__class__ is not dict: {variable} = as_mapping({variable})")
        for field in layout.fields:
            self._value(field, self._get(field, variable))
        if not self._is_flexible:
            return
        if not layout.tagged:
            self.run.append(("B", "0"))
            return
        tags = self.fresh("tags")
        self.line(f"{tags} = []")
        for field in layout.tagged:
            self._tag(field, variable, tags)
        self.run.append(("B", f"len({tags})"))
        self.flush()
        self.line(f"out += {tags}")

    def _get(self, field: FieldLayout, variable: str) -> str:
        if field.has_default or field.tag is not None:
            default = self.constant("default", field.implicit_default())
            return f"{variable}.get({field.name!r}, {default})"
        return f"{variable}[{field.name!r}]"

    def _tag(self, field: FieldLayout, variable: str, tags: str) -> None:
        value = self.fresh("t")
        self.line(f"{value} = {self._get(field, variable)}")
        default = field.implicit_default()
        function, default_name = self._tag_names[id(field)]
        if field.struct is not None and not field.is_array:
            self.line(f"{value} = {function}({value})")
            with self.block(f"if {value} != {default_name}:"):
                self.line(f"{tags}.append(tagged_field({field.tag}, {value}))")
            return
        if default is None:
            condition = f"{value} is not None"
        elif field.is_array:
            condition = f"len({value})"
        elif field.kind == UUID:
            condition = f"{value} is not None and {value} != NULL_UUID"
        else:
            condition = f"{value} != {self.constant('default', default)}"
        with self.block(f"if {condition}:"):
            self.line(f"{tags}.append(tagged_field({field.tag}, {function}({value})))")

    def _tag_functions(self, layout: StructLayout) -> list[tuple[str, str, Any]]:
        """A function for each tagged field below `layout`; defaults of structs to encode later."""
        self._tag_names: dict[int, tuple[str, str]] = {}
        defaults: list[tuple[str, str, Any]] = []
        self._add_tag_functions(layout, defaults)
        return defaults

    def _add_tag_functions(
        self, layout: StructLayout, defaults: list[tuple[str, str, Any]]
    ) -> None:
        for field in layout.all_fields():
            if field.struct is not None:
                self._add_tag_functions(field.struct, defaults)
            if field.tag is None:
                continue
            function, default = self.fresh("encode_tag"), self.fresh("encoded_default")
            self._tag_names[id(field)] = function, default
            with self.block(f"def {function}(value):"):
                self.line("out = []")
                self.line("append = out.append")
                self._value(field, "value")
                self.flush()
                self.line("return b''.join(out)")
            if field.struct is not None and not field.is_array:
                defaults.append((default, function, field.implicit_default()))

    # -- values -----------------------------------------------------------------------------

    def _value(self, field: FieldLayout, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.struct is not None:
            self._nested(field, field.struct, value)
        elif field.kind in (STRING, BYTES):
            self._sized(field, value)
        elif field.kind == UUID:
            self.run.append(("16s", f"uuid_bytes({value})"))
        else:
            self.run.append((field.kind, value))

    def _nested(self, field: FieldLayout, layout: StructLayout, value: str) -> None:
        variable = self.fresh("m")
        self.line(f"{variable} = {value}")
        if not field.is_nullable:
            self._struct(layout, variable)
            return
        self.run.append(("b", f"-1 if {variable} is None else 1"))
        with self.block(f"if {variable} is not None:"):
            self._struct(layout, variable)

    def _sized(self, field: FieldLayout, value: str) -> None:
        """A string or bytes: the length, then so many bytes."""
        content, length = self.fresh("s"), self.fresh("n")
        encoded = ".encode()" if field.kind == STRING else ""
        one_more = " + 1" if self._is_flexible else ""
        if field.is_nullable:
            self.line(f"{content} = {value}")
            null = 0 if self._is_flexible else -1
            self.line(f"if {content} is None: {content} = b''; {length} = {null}")
            self.line(f"else: {content} = {content}{encoded}; {length} = len({content}){one_more}")
        else:
            self.line(f"{content} = {value}{encoded}")
            self.line(f"{length} = len({content}){one_more}")
        if field.kind == STRING and self._is_flexible:
            self.line(f"if {length} > {STRING_BYTES_MAX + 1}: raise TypeError('a string too long')")
        self._end_run_with("h" if field.kind == STRING else "i", length)
        self.line(f"append({content})")

    def _array(self, field: FieldLayout, value: str) -> None:
        items, count = self.fresh("items"), self.fresh("n")
        one_more = " + 1" if self._is_flexible else ""
        self.line(f"{items} = {value}")
        if field.is_nullable:
            null = 0 if self._is_flexible else -1
            self.line(f"if {items} is None: {items} = (); {count} = {null}")
            self.line(f"else: {count} = len({items}){one_more}")
        else:
            self.line(f"{count} = len({items}){one_more}")
        self._end_run_with("i", count)
        self._elements(field, items)

    def _elements(self, field: FieldLayout, items: str) -> None:
        if field.kind not in (STRING, BYTES, UUID, STRUCT):
            pack = self.constant("array", array_packer(field.kind))
            self.line(f"if {items}: append({pack}({items}))")
            return
        element = self.fresh("m")
        with self.block(f"for {element} in {items}:"):
            if field.struct is not None:
                self._struct(field.struct, element)
            else:
                plain = FieldLayout(field.name, field.kind, False, False, None, False, None, None)
                self._value(plain, element)
