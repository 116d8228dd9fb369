"""Tables of records: between a topic and Arrow with no Python object per record.

`Json` and `Avro` decode keys and values into typed columns. The rest of the client never imports
this package before it is asked for a table, and nothing in it loads before it is used: numpy and
pyarrow take longer to load than a small program runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.columns.avro import Avro
    from ottla.client.columns.errors import ColumnError
    from ottla.client.columns.json import Json

__all__ = ["Avro", "ColumnError", "Json"]

_HOMES = {
    "Avro": "ottla.client.columns.avro",
    "ColumnError": "ottla.client.columns.errors",
    "Json": "ottla.client.columns.json",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ottla.client.columns' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value
