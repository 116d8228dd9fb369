"""`ottla serve`: reads its options and starts one broker in the foreground.

Starting has to be quick, so `main` asks `read_plainly` first, which needs no option parser. What
it does not understand at once (help, a mistake) goes to `serve_command`, which knows the same
options and explains them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.base.errors import ConfigError

VALUE_OPTIONS = ("--override", "--data", "--listen")


@dataclass(slots=True)
class ServeOptions:
    path: str | None = None
    overrides: list[str] = field(default_factory=list)
    data_dir: str | None = None
    listen: str | None = None


def read_plainly(arguments: Sequence[str]) -> ServeOptions | None:
    """The options, or None if there is anything to explain."""
    options = ServeOptions()
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name in VALUE_OPTIONS:
            taken = value if equals else next(waiting, "")
            if not _take(options, name, taken):
                return None
        elif argument.startswith("-") or not argument or options.path is not None:
            return None
        else:
            options.path = argument
    return options


def _take(options: ServeOptions, name: str, value: str) -> bool:
    if not value or value.startswith("-"):
        return False
    if name == "--data":
        options.data_dir = value
    elif name == "--listen":
        options.listen = value
    else:
        options.overrides.append(value)
        key, equals, _ = value.partition("=")
        return bool(equals and key.strip())
    return True


def run(options: ServeOptions) -> int:
    """Serves until it is told to stop; the exit code."""
    # The broker's rooms are loaded here and not for `ottla topic` or for help.
    from ottla.broker.serve import run as run_broker  # noqa: PLC0415

    try:
        return run_broker(options.path, options.overrides, options.data_dir, options.listen)
    except ConfigError as error:
        sys.stderr.write(f"ottla: {error}\n")
        return 1
