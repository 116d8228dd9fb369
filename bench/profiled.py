"""`ottla` under Python's profiler, for the cases that miss their target.

`OTTLA_BENCH_COMMAND="python -m bench.profiled FILE" make bench CASES=produce_1k`: when a broker
stops it writes FILE.PID (for pstats) and FILE.PID.txt (what took longest). The figures of such a
run are of no use.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import time
from pathlib import Path

from ottla.cli.main import run

LINES = 50


def main() -> int:
    path = f"{sys.argv[1]}.{os.getpid()}"
    # Processor time: waiting for the next event is no work, and neither is being preempted.
    profile = cProfile.Profile(time.thread_time)
    try:
        return profile.runcall(run, sys.argv[2:])
    finally:
        profile.dump_stats(path)
        with Path(f"{path}.txt").open("w") as text:
            pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(LINES)


if __name__ == "__main__":
    sys.exit(main())
