"""How a load becomes a command: its arguments from one JSON object, its figures as another."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping


def run_as_command(load: Callable[..., Mapping[str, float]]) -> None:
    """A load lives for seconds, so a pause of its collector would be the only thing it collects."""
    gc.disable()
    arguments = json.loads(sys.argv[1])
    print(json.dumps(load(**arguments)), flush=True)
