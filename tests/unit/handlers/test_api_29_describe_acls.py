"""Goal: without an authorizer the question for access rules is refused with a reason.
Method: SECURITY_DISABLED(54) and no resources, as Kafka 4.3.1 answers, in every version.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_29_describe_acls as module
from tests.unit.handlers.read_fakes import FakeServices, an_image, ask, versions_of


@pytest.mark.parametrize("version", versions_of(module))
def test_refused(version: int) -> None:
    answer = ask(
        module,
        FakeServices(an_image()),
        version,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert answer.pop("error_message")
    assert answer == {"throttle_time_ms": 0, "error_code": 54, "resources": []}
