"""Objects that every Python process of Spark can load, also where Ottla was sent by the client.

A client of Spark Connect may send Ottla as an archive (`addArtifact`). Spark keeps it in a
directory of the session, and tells most of its Python processes of it; but not those that plan a
streaming query, nor those that write its batches. So what is pickled for them begins with the place
where Ottla was found when it was pickled, and they look there where there is nothing else to
import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ottla


class Shipped:
    """To be inherited from by what Spark pickles itself, not by what that holds."""

    def __reduce__(self) -> Any:
        return _made, (_Place(), type(self)), self.__getstate__()


class _Place:
    """Stands before the class in a pickle, so that it is looked for after this has been loaded."""

    def __reduce__(self) -> Any:
        return _look_in, (str(Path(ottla.__file__).parents[1]),)


def _look_in(archive: str) -> None:
    import importlib.util
    import os
    import sys

    from pyspark import SparkFiles

    if importlib.util.find_spec("ottla") is None:
        # On another machine the session's directory lies where that one keeps its files.
        session, name = archive.split(os.sep)[-2:]
        sys.path += [os.path.join(SparkFiles.getRootDirectory(), session, name), archive]


def _made(place: None, kind: type[object]) -> Any:
    return object.__new__(kind)


# Spark's pickler takes functions of `__main__` along by value; these have to run where this module
# cannot be imported yet.
_look_in.__module__ = _made.__module__ = "__main__"
