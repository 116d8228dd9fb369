"""Goal: UpdateFeatures answers in every version, whose requests and answers differ.
Method: through the codec of each version; what Kafka answers is compared in test_admin_as_kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_57_update_features as module
from ottla.metadata import features
from ottla.protocol.error_codes import INVALID_UPDATE_VERSION, KAFKA_STORAGE_ERROR, NONE
from tests.unit.handlers.fakes import FakeServices, ask, versions_of

VERSIONS = versions_of(module)


@pytest.fixture(autouse=True)
def another_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "SUPPORTED", {**features.SUPPORTED, "test.version": (0, 3)})


def update(
    services: FakeServices, version: int, name: str, level: int, *, downgrade: bool = False
) -> dict[str, Any]:
    change = {
        "feature": name,
        "max_version_level": level,
        "allow_downgrade": downgrade,
        "upgrade_type": 2 if downgrade else 1,
    }
    return ask(
        services, module, version, timeout_ms=1000, feature_updates=[change], validate_only=False
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_up_and_down(version: int) -> None:
    services = FakeServices()
    answer = update(services, version, "test.version", 2)
    assert (answer["error_code"], answer["error_message"]) == (NONE, None)
    if version < 2:
        (told,) = answer["results"]
        assert (told["feature"], told["error_code"]) == ("test.version", NONE)
    assert services.image.features["test.version"] == 2
    assert update(services, version, "test.version", 1)["error_code"] == INVALID_UPDATE_VERSION
    assert update(services, version, "test.version", 1, downgrade=True)["error_code"] == NONE
    assert services.image.features["test.version"] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_refused(version: int) -> None:
    answer = update(FakeServices(), version, "no.such", 1)
    assert answer["error_code"] == INVALID_UPDATE_VERSION
    assert answer["error_message"]
    assert not answer["results"]


def test_a_store_that_fails() -> None:
    services = FakeServices()
    services.controller.failure = StorageError("/data/metadata.sqlite", "commit")
    assert update(services, 2, "test.version", 1)["error_code"] == KAFKA_STORAGE_ERROR
