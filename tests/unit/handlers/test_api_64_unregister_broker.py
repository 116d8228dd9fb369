"""Goal: a dead broker can be forgotten, a live one can not.
Method: through the codec, over brokers in each state.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_64_unregister_broker as module
from ottla.protocol.error_codes import BROKER_ID_NOT_REGISTERED, INVALID_REQUEST, NONE
from tests.unit.handlers.fakes import FakeServices, ask, create_topic


def a_cluster() -> FakeServices:
    services = FakeServices(brokers=(1, 2, 3), dead=(3,))
    create_topic(services, "t", (1, 3))
    return services


@pytest.mark.parametrize(
    ("broker", "code"), [(3, NONE), (2, INVALID_REQUEST), (9, BROKER_ID_NOT_REGISTERED)]
)
def test_answers(broker: int, code: int) -> None:
    services = a_cluster()
    answer = ask(services, module, 0, broker_id=broker)
    assert answer["error_code"] == code
    assert (answer["error_message"] is None) == (code == NONE)
    assert (3 in services.image.brokers) == (code != NONE)


def test_its_replicas_stay() -> None:
    services = a_cluster()
    ask(services, module, 0, broker_id=3)
    assert services.image.topics["t"].partitions[0].replicas == (1, 3)
    assert ask(services, module, 0, broker_id=3)["error_code"] == BROKER_ID_NOT_REGISTERED
