"""Goal: without an authorizer nobody is led to believe that a rule was stored.
Method: SECURITY_DISABLED(54) for each of them, as Kafka 4.3.1 answers, in every version.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_30_create_acls as module
from tests.unit.handlers.read_fakes import FakeServices, an_image, ask, versions_of

RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@pytest.mark.parametrize("version", versions_of(module))
@pytest.mark.parametrize("count", [0, 1, 2])
def test_each_is_refused(version: int, count: int) -> None:
    answer = ask(module, FakeServices(an_image()), version, creations=[RULE] * count)
    assert [result["error_code"] for result in answer["results"]] == [54] * count
    assert all(result["error_message"] for result in answer["results"])
