"""Source code in the making: lines, indentation, names. What the two compilers have in common.

A run is a row of values of a fixed size that one struct.Struct reads or writes in one call; it ends
where something of a variable size comes, and before every block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class SourceWriter:
    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.run: list[tuple[str, str]] = []  # (format, expression or target)
        self._lines: list[str] = []
        self._depth = 0
        self._number = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def fresh(self, prefix: str) -> str:
        """A name that nothing else in this source has."""
        self._number += 1
        return f"{prefix}{self._number}"

    def constant(self, prefix: str, value: Any) -> str:
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.flush()
        self.line(head)
        self._depth += 1
        start = len(self._lines)
        yield
        self.flush()
        if len(self._lines) == start:
            self.line("pass")
        self._depth -= 1

    def flush(self) -> None:
        """Ends the run. The compilers say how."""

    def compiled(self, function: str, title: str) -> Callable[..., Any]:
        source = "\n".join(self._lines)
        # The source is made of kio's field names and our own words; nothing of it came by the wire.
        exec(compile(source, f"<{title}>", "exec"), self.names)  # noqa: S102
        made: Callable[..., Any] = self.names[function]
        return made
