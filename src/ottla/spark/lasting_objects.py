"""What a Python process of Spark has loaded is not looked through behind each piece of work.

Spark's daemon has its processes collect garbage after every task, and after every step of a
micro-batch in the driver (`gc.collect` in `pyspark.daemon`). That looks at each object which could
be part of a cycle: some hundred thousand, all but a few of them modules and what belongs to them,
for some dozen milliseconds each time. As soon as a piece of work has loaded nothing more, what is
there is set apart (`gc.freeze`): it has just been looked through, and what comes after it is
collected as before.

Only in the processes of that daemon. Any other is somebody else's.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


class LastingObjects:
    """Of one process; counts its modules, for whoever loads one makes objects that last."""

    __slots__ = ("_apart", "_seen")

    def __init__(self) -> None:
        self._seen = 0
        self._apart = 0

    def set_apart(self) -> bool:
        """To be called where a piece of work begins. Whether it was done now."""
        loaded = len(sys.modules)
        if loaded == self._apart or not _is_daemons():
            return False
        if loaded != self._seen:
            self._seen = loaded
            return False
        gc.freeze()
        self._apart = loaded
        return True

    def put_back(self) -> None:
        """As if it had never been done: for comparisons."""
        gc.unfreeze()
        self._seen = self._apart = 0


def _is_daemons() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON


OF_THIS_PROCESS = LastingObjects()
