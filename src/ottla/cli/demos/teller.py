"""How a story is told: plain lines anywhere, or colours and pauses on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

CHAPTER_PAUSE_S = 0.8
LINE_PAUSE_S = 0.12
VOICES = ("cyan", "magenta", "yellow", "blue")


class Teller(Protocol):
    def chapter(self, number: int, title: str) -> None: ...
    def command(self, text: str) -> None:
        """What people would type to do the same."""

    def say(self, text: str) -> None: ...
    def quote(self, who: str, text: str) -> None:
        """What a process said."""

    def bytes_(self, content: bytes) -> None: ...
    def log(self, name: str, records: Sequence[str], committed: dict[str, int]) -> None:
        """A partition from offset 0, and where groups stand in it."""

    def waiting(self, why: str) -> AbstractContextManager[None]:
        """While something takes its time."""

    def verdict(self, text: str) -> None: ...
    def last_line(self, text: str) -> None: ...


def hex_lines(content: bytes) -> list[str]:
    return [
        f"{start:04x}  {content[start : start + 16].hex(' ', 1):47}  "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in content[start : start + 16])
        for start in range(0, len(content), 16)
    ]


class PlainTeller:
    """Needs no terminal: a line for everything, indented under its chapter."""

    def chapter(self, number: int, title: str) -> None:
        self._write(f"{number}. {title}")

    def command(self, text: str) -> None:
        self._write(f"   $ {text}")

    def say(self, text: str) -> None:
        self._write(f"   {text}")

    def quote(self, who: str, text: str) -> None:
        self._write(f"   {who} | {text}")

    def bytes_(self, content: bytes) -> None:
        for line in hex_lines(content):
            self._write(f"   {line}")

    def log(self, name: str, records: Sequence[str], committed: dict[str, int]) -> None:
        cells = " ".join(f"[{offset} {text}]" for offset, text in enumerate(records))
        self._write(f"   {name}: {cells}")
        for group, offset in committed.items():
            self._write(f"   {group} goes on at offset {offset}")

    @contextmanager
    def waiting(self, why: str) -> Iterator[None]:
        self.say(why)
        yield

    def verdict(self, text: str) -> None:
        self._write(f"   => {text}")

    def last_line(self, text: str) -> None:
        self._write(text)

    def _write(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class TerminalTeller:
    """Takes its time, so that people can follow, unless it is told to be fast."""

    def __init__(self, console: Console, *, fast: bool) -> None:
        self._console = console
        self._fast = fast
        self._voices: dict[str, str] = {}

    def chapter(self, number: int, title: str) -> None:
        self._pause(CHAPTER_PAUSE_S if number > 1 else 0.0)
        self._console.print()
        heading = Text(f"{number}  {title}", style="bold")
        self._console.print(Rule(heading, align="left", style="dim"))

    def command(self, text: str) -> None:
        self._pause(LINE_PAUSE_S)
        self._console.print(Text.assemble(("  $ ", "dim"), (text, "bold")))
        self._pause(LINE_PAUSE_S)

    def say(self, text: str) -> None:
        self._console.print(Text(f"  {text}"))
        self._pause(LINE_PAUSE_S)

    def quote(self, who: str, text: str) -> None:
        voice = self._voices.setdefault(who, VOICES[len(self._voices) % len(VOICES)])
        self._console.print(Text.assemble((f"  {who:>12} ", f"bold {voice}"), ("│ ", "dim"), text))
        self._pause(LINE_PAUSE_S / 4)

    def bytes_(self, content: bytes) -> None:
        for line in hex_lines(content):
            position, rest = line[:4], line[4:53]
            self._console.print(Text.assemble("  ", (position, "dim"), rest, (line[53:], "green")))

    def log(self, name: str, records: Sequence[str], committed: dict[str, int]) -> None:
        table = Table(box=box.SQUARE, show_footer=bool(committed), border_style="dim")
        for offset in range(len(records) + 1):
            here = [group for group, place in committed.items() if place == offset]
            mark = Text("\n".join(f"▲ {group}" for group in here), style="bold cyan")
            table.add_column(Text(str(offset), style="dim"), footer=mark, no_wrap=True)
        table.add_row(*[Text(text, style="green") for text in records], Text("…", style="dim"))
        self._console.print(Text(f"  {name}", style="dim"))
        self._console.print(Padding(table, (0, 0, 0, 2)))
        self._pause(LINE_PAUSE_S)

    @contextmanager
    def waiting(self, why: str) -> Iterator[None]:
        with self._console.status(why):
            yield
        self._console.print(Text(f"  {why}", style="dim"))

    def verdict(self, text: str) -> None:
        self._console.print(Text.assemble(("  ▶ ", "bold green"), (text, "bold")))
        self._pause(LINE_PAUSE_S)

    def last_line(self, text: str) -> None:
        self._pause(LINE_PAUSE_S)
        self._console.print()
        self._console.print(Text(text, style="bold green"))

    def _pause(self, seconds: float) -> None:
        if not self._fast:
            time.sleep(seconds)
