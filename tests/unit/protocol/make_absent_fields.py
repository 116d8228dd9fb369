"""Writes src/ottla/protocol/absent_fields.py anew from kio; run it as a module, then format.

`table_from_kio` is also what the test compares the checked-in table with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.schema.index import api_key_map

from ottla.protocol import api_keys
from ottla.protocol.absent_fields import DefaultStruct
from ottla.protocol.layout import FieldLayout, StructLayout, load_layout, supported_versions

Table = dict[int, dict[str, dict[str, Any]]]

HEAD = '''"""Fields that not every version of their struct has, and what stands in for them.

Made from kio by tests/unit/protocol/make_absent_fields.py; a test compares the two. It is here so
that the first request of a kind costs the import of one version of a message, not of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.protocol.primitives import NULL_UUID


@dataclass(slots=True)
class DefaultStruct:
    """A struct in its default state."""

    name: str
    fields: dict[str, Any]


# By API key, struct and field. () is an empty array.
'''


def structs_of(layout: StructLayout) -> list[StructLayout]:
    found = [layout]
    for field in layout.all_fields():
        if field.struct is not None:
            found += structs_of(field.struct)
    return found


def default_of(field: FieldLayout) -> Any:
    default = field.implicit_default()
    if field.struct is not None and not field.is_array and default is not None:
        return DefaultStruct(field.struct.name, default)
    return default


def table_from_kio(*, is_request: bool) -> Table:
    table: Table = {}
    for api_key in api_key_map:
        versions = supported_versions(api_key)
        assert versions is not None
        by_name: dict[str, list[dict[str, FieldLayout]]] = {}
        for version in range(versions[0], versions[1] + 1):
            layout = load_layout(api_key, version, is_request=is_request)
            assert layout is not None
            for struct in structs_of(layout):
                fields = {field.name: field for field in struct.all_fields()}
                by_name.setdefault(struct.name, []).append(fields)
        for name, rows in by_name.items():
            union = {field_name: field for row in rows for field_name, field in row.items()}
            absent = {
                field_name: default_of(field)
                for field_name, field in union.items()
                if any(field_name not in row for row in rows)
            }
            if absent:
                table.setdefault(api_key, {})[name] = absent
    return table


def text_of(name: str, table: Table) -> str:
    rows = [f"{name}: dict[int, dict[str, dict[str, Any]]] = {{"]
    for api_key, structs in table.items():
        rows.append(f"    {api_key}: {{  # {api_keys.name_of(api_key)}")
        for struct, fields in structs.items():
            shown = ", ".join(f'"{field}": {shown_value(value)}' for field, value in fields.items())
            rows.append(f'        "{struct}": {{{shown}}},')
        rows.append("    },")
    return "\n".join([*rows, "}", ""])


def shown_value(value: Any) -> str:
    if isinstance(value, DefaultStruct):
        return f"DefaultStruct({value.name!r}, {value.fields!r})"
    if value.__class__.__name__ == "UUID":
        return "NULL_UUID"
    return repr(value)


def main() -> None:
    target = Path(__file__).parents[3] / "src/ottla/protocol/absent_fields.py"
    parts = [HEAD, text_of("REQUESTS", table_from_kio(is_request=True)), ""]
    target.write_text("\n".join([*parts, text_of("RESPONSES", table_from_kio(is_request=False))]))


if __name__ == "__main__":
    main()
