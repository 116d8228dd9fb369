"""The `ottla` command: finds the command that is meant, and ends with the right exit code.

0 done, 1 failed with one line on stderr, 2 wrong usage. No traceback reaches people unless they set
OTTLA_DEBUG=1. Commands are loaded when they are called; `ottla serve` goes past the option parser.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from types import TracebackType

from ottla.cli.failure import INTERRUPTED, Failure


def app() -> None:
    """The entry point of the console script."""
    sys.excepthook = explain_briefly
    _open_missing_streams()
    sys.exit(run(sys.argv[1:]))


def _open_missing_streams() -> None:
    """Who starts us may have closed some (`>&-`, a supervisor): Python has None for them then, and
    the first file or socket that is opened would get their number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)


def run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"] and "_OTTLA_COMPLETE" not in os.environ:
        from ottla.cli import serve  # noqa: PLC0415 (nothing else may be loaded on the way)

        options = serve.read_plainly(arguments[1:])
        if options is not None:
            return serve.run(options)
    return run_command(arguments)


def run_command(arguments: list[str]) -> int:
    from ottla.cli import commands  # noqa: PLC0415 (typer takes 60 ms to load)

    try:
        commands.run(arguments)
    except Failure as failure:
        return fail(str(failure))
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except KeyboardInterrupt:  # typer's own way to end, for who is faster than typer
        return INTERRUPTED
    except OSError as cause:
        if cause.errno != errno.ENOSPC:
            raise
        return fail(f"the output cannot be written: {cause.strerror}")
    return 0


def fail(reason: str) -> int:
    with contextlib.suppress(OSError):  # a full disk, a reader that is gone: the reason counts
        sys.stdout.flush()
    sys.stderr.write(f"ottla: {' '.join(reason.split())}\n")
    return 1


def explain_briefly(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A mistake of ours is one line too; who wants to report it sets OTTLA_DEBUG=1."""
    if os.environ.get("OTTLA_DEBUG"):
        sys.__excepthook__(kind, error, trace)
    else:
        fail(f"unexpected {kind.__name__}: {error} (set OTTLA_DEBUG=1 to see where)")


if __name__ == "__main__":
    app()
