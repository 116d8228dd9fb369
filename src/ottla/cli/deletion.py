"""Deleting several things by name: each is tried, and what did not work is told at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.cli.failure import Failure
from ottla.cli.output import OutputFormat


def delete_each(names: Iterable[str], delete: Callable[[str], None], output: OutputFormat) -> None:
    failures = []
    for name in names:
        try:
            delete(name)
        except Failure as failure:
            failures.append(str(failure))
        else:
            if output is OutputFormat.text:
                print(f"deleted {name}")
    if failures:
        raise Failure("; ".join(failures))
