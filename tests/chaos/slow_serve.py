"""`python slow_serve.py FLAG serve ...`: a broker on a disk that takes its time for each sync while
the file FLAG is there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

SYNC_S = 0.3


def slowed(flag: str, sync: Callable[[int], None]) -> Callable[[int], None]:
    def sync_slowly(descriptor: int) -> None:
        if os.path.exists(flag):
            time.sleep(SYNC_S)
        sync(descriptor)

    return sync_slowly


if __name__ == "__main__":
    flag = sys.argv.pop(1)
    os.fdatasync = slowed(flag, os.fdatasync)  # type: ignore[assignment]
    os.fsync = slowed(flag, os.fsync)  # type: ignore[assignment]

    from ottla.cli.main import app

    app()
