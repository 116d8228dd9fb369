"""The classes that decoded messages are made of: one per struct of a message, for all its versions.

Slots and plain attribute stores: an instance costs 50 ns plus 10 per field, a dataclass 200 and
more. A class holds the union of the fields of all versions. To learn that union from kio would mean
to import every version of the message (50 ms for some); instead `absent_fields` lists the few
fields that not every version has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ottla.base.errors import InvariantError, check
from ottla.protocol.absent_fields import REQUESTS, RESPONSES, DefaultStruct


class Message:
    """A decoded struct. Only what the generated classes have in common, and nothing hot."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


_classes: dict[tuple[int, bool, str], type[Message]] = {}


def absent_fields(api_key: int, is_request: bool, struct_name: str) -> dict[str, Any]:
    """Fields of the struct that some versions lack, each with the value that it has there."""
    return (REQUESTS if is_request else RESPONSES).get(api_key, {}).get(struct_name, {})


def struct_class(
    api_key: int, is_request: bool, struct_name: str, names: Iterable[str]
) -> type[Message]:
    """The class of a struct, of which `names` are the fields that the version at hand has."""
    key = (api_key, is_request, struct_name)
    known = _classes.get(key)
    if known is None:
        slots = dict.fromkeys((*names, *absent_fields(api_key, is_request, struct_name)))
        known = type(struct_name, (Message,), {"__slots__": tuple(slots)})
        _classes[key] = known
    check(set(names) <= set(known.__slots__), f"absent_fields knows every field of {struct_name}")
    return known


def default_instance(api_key: int, is_request: bool, default: DefaultStruct) -> Message:
    """What stands in a struct's place where the version does not have it."""
    made = struct_class(api_key, is_request, default.name, default.fields)()
    for name, value in default.fields.items():
        setattr(made, name, value)
    return made


def as_mapping(fields: Any) -> Mapping[str, Any]:
    """What an encoder reads from: a mapping, or a decoded message."""
    if isinstance(fields, Mapping):
        return fields
    if isinstance(fields, Message):
        return {name: getattr(fields, name) for name in fields.__slots__}
    raise InvariantError(f"a struct is given as a mapping, not as {type(fields).__name__}")
