"""The one error that a command ends with.

Its message is the single line that people and scripts read on stderr, so it says what failed,
where, and what to do; `main` prints it and exits with 1. Wrong usage is typer's BadParameter and
exits with 2. Ctrl-C is neither.
"""

from __future__ import annotations

from ottla.base.errors import OttlaError

INTERRUPTED = 130
"""What Ctrl-C exits with, where it is not the way to end."""


class Failure(OttlaError):
    """A command could not do what it was asked."""


class NoAnswer(Failure):
    """A broker that was asked said nothing in time: others may still answer."""
