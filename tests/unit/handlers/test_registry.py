"""Goal: the table tells the truth about every handler, and no handler is imported before its use.
Method: compare it with the modules, the schemas and what Apache Kafka 4.3.1 advertises.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ottla.handlers
from ottla.handlers import registry
from ottla.protocol.messages import supported_versions
from tests.patience import SECONDS_MAX

# Lowest and highest version as Apache Kafka 4.3.1 advertised them on its broker listener.
KAFKA_4_3_1 = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
}


@pytest.mark.parametrize("api_key", registry.SERVED)
def test_the_table_repeats_what_the_module_says(api_key: int) -> None:
    name, *versions = registry.SERVED[api_key]
    module = import_module(f"ottla.handlers.{name}")
    assert name.startswith(f"api_{api_key:02}_")
    assert (api_key, tuple(versions)) == (module.API_KEY, module.VERSIONS)
    assert registry.handler_of(api_key) is module.handle
    assert registry.handler_of(api_key) is module.handle


def test_every_handler_is_in_the_table() -> None:
    directory = Path(next(iter(ottla.handlers.__path__)))
    modules = {path.stem for path in directory.glob("api_*.py")}
    assert modules == {entry[0] for entry in registry.SERVED.values()}


def test_what_is_advertised_is_what_kafka_advertises() -> None:
    advertised = {key: (low, high) for key, low, high in registry.advertised_apis()}
    assert advertised == {key: KAFKA_4_3_1[key] for key in registry.SERVED}
    assert list(advertised) == sorted(advertised)
    two_phase = {key: high for key, _, high in registry.advertised_apis(two_phase_commit=True)}
    assert {key for key in two_phase if two_phase[key] != advertised[key][1]} == {22}
    assert two_phase[22] == 6 and registry.is_served(22, 6)


@pytest.mark.parametrize("api_key", registry.SERVED)
def test_every_version_has_a_schema(api_key: int) -> None:
    lowest, highest = supported_versions(api_key)
    _, low, high = registry.SERVED[api_key]
    assert lowest <= low <= high <= highest


def test_served_or_not() -> None:
    assert registry.is_served(3, 0) and registry.is_served(3, 13)
    assert not registry.is_served(3, 14)
    assert not registry.is_served(3, -1)
    assert not registry.is_served(999, 0)
    # Advertised for librdkafka's sake, and refused.
    assert not registry.is_served(0, 2)
    assert registry.is_served(0, 3)


def test_no_handler_is_imported_before_its_first_request() -> None:
    program = (
        "import sys\n"
        "from ottla.handlers import registry\n"
        "registry.advertised_apis()\n"
        "registry.is_served(3, 1)\n"
        "print([name for name in sys.modules if name.startswith('ottla.handlers.api_')])\n"
        "registry.handler_of(29)\n"
        "print([name for name in sys.modules if name.startswith('ottla.handlers.api_')])\n"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=SECONDS_MAX,
    )
    assert finished.stdout.splitlines() == ["[]", "['ottla.handlers.api_29_describe_acls']"]
