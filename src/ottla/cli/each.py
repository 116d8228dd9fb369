"""The same for several things by name: each is tried, what was done is told, and what did not work
at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.cli.failure import Failure
from ottla.cli.output import OutputFormat, print_json
from ottla.client.errors import BrokerError


def do_each(
    kind: str,
    names: Iterable[str],
    act: Callable[[str], bool],
    *,
    done: str,
    otherwise: str = "",
    output: OutputFormat,
) -> None:
    """`act` says whether there was anything to do: `done` is the word for that, `otherwise` for the
    other, if it is to be told. A name that comes twice counts once."""
    rows: list[dict[str, Any]] = []
    failures = []
    for name in dict.fromkeys(names):
        row = {kind: name, done: False}
        rows.append(row)
        try:
            row[done] = act(name)
        except Failure as failure:
            row["error"] = str(failure)
            failures.append(str(failure))
            continue
        if output is OutputFormat.text and (row[done] or otherwise):
            print(f"{done} {name}" if row[done] else f"{name} {otherwise}")
    if output is OutputFormat.json:
        print_json(rows)
    if failures:
        raise Failure("; ".join(failures))


def is_refusal(failure: Failure, code: int) -> bool:
    """Whether a broker has said no with this code."""
    cause = failure.__cause__
    return isinstance(cause, BrokerError) and cause.code == code
