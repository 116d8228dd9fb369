"""What a process of Spark's daemon has loaded is set apart once it loads nothing more."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, since what is set apart stays apart. It prints, for one call after the
# other, whether it was done then, and at last how many objects are not looked at any more.
WORK = """
import gc, sys
from importlib.machinery import ModuleSpec
{main}
from ottla.spark.lasting_objects import OF_THIS_PROCESS as here

told = [here.set_apart(), here.set_apart(), here.set_apart()]
import wave  # one more piece of work loads something
told += [here.set_apart(), here.set_apart()]
{then}
print(*told, gc.get_freeze_count() > 0)
"""
BY_THE_DAEMON = 'sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)'


def told(main: str, then: str = "") -> list[bool]:
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(main=main, then=then)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [word == "True" for word in done.stdout.split()]


def test_what_lasts_is_set_apart_when_a_piece_of_work_has_loaded_nothing() -> None:
    assert told(BY_THE_DAEMON) == [False, True, False, False, True, True]


def test_a_process_that_is_not_the_daemons_is_left_alone() -> None:
    assert told("") == [False] * 6


def test_it_can_be_put_back() -> None:
    assert told(BY_THE_DAEMON, "here.put_back()")[-1] is False
