"""Without a compiler there is nothing here to compare with Python's own code."""

from __future__ import annotations

from ottla.native import compiled

collect_ignore = [] if compiled is not None else ["test_twins.py"]
