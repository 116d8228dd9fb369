"""Goal: every client finds out what it may send, whatever version it begins with.
Method: the answers of Kafka 4.3.1, and a feature that begins at level 0.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_18_api_versions as module
from ottla.protocol.messages import encode_response
from tests.unit.handlers.read_fakes import FakeServices, an_image, ask, versions_of

VERSIONS = versions_of(module)
METADATA_VERSION = {"name": "metadata.version", "min_version": 7, "max_version": 30}


def api_versions(version: int, name: str = "a", software_version: str = "1") -> dict[str, Any]:
    return ask(
        module,
        FakeServices(an_image()),
        version,
        client_software_name=name,
        client_software_version=software_version,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_ranges_and_features(version: int) -> None:
    answer = api_versions(version)
    ranges = [
        (each["api_key"], each["min_version"], each["max_version"]) for each in answer["api_keys"]
    ]
    assert ranges == [(0, 0, 13), (3, 0, 13), (18, 0, 4)]
    assert (answer["error_code"], answer["throttle_time_ms"]) == (0, 0)
    assert answer["zk_migration_ready"] is False
    if version < 3:
        assert list(answer["supported_features"]) == []
        return
    assert answer["supported_features"][0] == METADATA_VERSION
    assert answer["finalized_features_epoch"] == 0
    assert answer["finalized_features"] == [
        {"name": "metadata.version", "max_version_level": 30, "min_version_level": 30},
        {"name": "group.version", "max_version_level": 1, "min_version_level": 1},
        {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2},
        {
            "name": "eligible.leader.replicas.version",
            "max_version_level": 1,
            "min_version_level": 1,
        },
    ]


@pytest.mark.parametrize("version", [3, 4])
def test_our_own_client_is_told_what_is_not_stable_elsewhere(version: int) -> None:
    services = FakeServices(an_image())
    services.supported_apis = lambda listener_name: [(22, 0, 5), (26, 0, 5)]  # type: ignore[method-assign]

    def highest(name: str) -> list[int]:
        asked = {"client_software_name": name, "client_software_version": "1"}
        return [one["max_version"] for one in ask(module, services, version, **asked)["api_keys"]]

    assert highest("ottla") == [6, 5]
    assert highest("apache-kafka-java") == [5, 5]


@pytest.mark.parametrize(("version", "shown"), [(3, False), (4, True)])
def test_a_feature_from_level_zero_is_kept_from_older_clients(version: int, shown: bool) -> None:
    told = api_versions(version)["supported_features"]
    assert ("group.version" in [feature["name"] for feature in told]) is shown
    assert METADATA_VERSION in told


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "software_version", "good"),
    [
        ("a.b-c1", "1.0.0", True),
        ("a", "1", True),
        ("", "1", False),
        ("-a", "1", False),
        ("a b", "1", False),
        ("a-", "1", False),
        ("a\n", "1", False),
        ("ä", "1", False),
        ("a.b-c1", "", False),
        ("a.b-c1", "1.", False),
    ],
)
def test_the_clients_software_has_a_name(
    version: int, name: str, software_version: str, good: bool
) -> None:
    answer = api_versions(version, name, software_version)
    if good or version < 3:
        assert answer["error_code"] == 0
        return
    assert answer["error_code"] == 42
    assert list(answer["api_keys"]) == []
    assert list(answer["supported_features"]) == list(answer["finalized_features"]) == []
    assert answer["finalized_features_epoch"] == -1


def test_an_unserved_version_is_answered_as_kafka_does_byte_for_byte() -> None:
    body = encode_response(18, 0, module.unsupported_version_response())
    assert body == b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
