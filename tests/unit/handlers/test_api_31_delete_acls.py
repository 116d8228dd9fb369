"""Goal: without an authorizer there is nothing to delete, and the client is told so.
Method: SECURITY_DISABLED(54) for each filter, as Kafka 4.3.1 answers, in every version.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_31_delete_acls as module
from tests.unit.handlers.read_fakes import FakeServices, an_image, ask, versions_of

FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.mark.parametrize("version", versions_of(module))
@pytest.mark.parametrize("count", [0, 1, 2])
def test_each_is_refused(version: int, count: int) -> None:
    answer = ask(module, FakeServices(an_image()), version, filters=[FILTER] * count)
    assert [result["error_code"] for result in answer["filter_results"]] == [54] * count
    assert all(result["error_message"] for result in answer["filter_results"])
    assert all(result["matching_acls"] == [] for result in answer["filter_results"])
