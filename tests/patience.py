"""How long tests wait for what has to happen, and how long a session must last.

The machine may be busy with everything else: a process may get no time for seconds. Only a test
that fails takes as long as these.
"""

from __future__ import annotations

SECONDS_MAX = 120.0

HEAL_SECONDS_MAX = 400.0
"""After faults: longer than any client goes on trying, which is five minutes."""

SESSION_MS = 60_000
"""Of members that nobody may take for dead."""

SHORT_SESSION_MS = 6_000
"""Of members that are killed and have to be missed."""
