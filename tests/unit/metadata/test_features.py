"""Goal: a level of a feature changes only to what every broker can work with, all updates or none.
Method: decisions over a cluster whose features are those of a new one; a second feature is added
for the test, because one alone can't show that all are refused together.
"""

from __future__ import annotations

import pytest

from ottla.metadata import features, paths
from ottla.metadata.features import (
    FINALIZED,
    SAFE_DOWNGRADE,
    SUPPORTED,
    UNSAFE_DOWNGRADE,
    FeaturesResult,
    FeatureUpdate,
    decide_update_features,
    finalized_epoch,
    finalized_features,
)
from ottla.metadata.image import EMPTY_IMAGE
from ottla.protocol.error_codes import INVALID_UPDATE_VERSION, NONE
from tests.unit.metadata.builders import Cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(features, "SUPPORTED", {**SUPPORTED, "test.version": (0, 3)})
    return Cluster()


def update(
    cluster: Cluster, *updates: tuple[str, int, int], validate_only: bool = False
) -> FeaturesResult:
    wanted = [FeatureUpdate(*each) for each in updates]
    return cluster.run(
        lambda image: decide_update_features(image, wanted, validate_only=validate_only)
    )


def test_a_new_cluster_has_what_is_built(cluster: Cluster) -> None:
    assert finalized_features(cluster.image) == FINALIZED
    assert FINALIZED == {
        "metadata.version": 30,
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
    }
    assert finalized_epoch(cluster.image) == 0
    assert finalized_features(EMPTY_IMAGE) == FINALIZED
    assert finalized_epoch(EMPTY_IMAGE) == 0
    for name, level in FINALIZED.items():
        lowest, highest = SUPPORTED[name]
        assert lowest <= level <= highest


def test_up_and_down_and_away(cluster: Cluster) -> None:
    assert update(cluster, ("test.version", 2, 1)) == FeaturesResult()
    assert cluster.image.features == {**FINALIZED, "test.version": 2}
    assert finalized_epoch(cluster.image) == 1
    assert update(cluster, ("test.version", 1, 1)).error_code == INVALID_UPDATE_VERSION
    assert update(cluster, ("test.version", 1, SAFE_DOWNGRADE)).error_code == NONE
    assert update(cluster, ("test.version", 0, UNSAFE_DOWNGRADE)).error_code == NONE
    assert cluster.image.features == FINALIZED
    assert cluster.same_as_store()


def test_eligible_leaders_go_down_when_it_is_said_so(cluster: Cluster) -> None:
    name = "eligible.leader.replicas.version"
    assert update(cluster, (name, 0, 1)).error_code == INVALID_UPDATE_VERSION
    assert update(cluster, (name, 0, SAFE_DOWNGRADE)).error_code == NONE
    assert name not in finalized_features(cluster.image)
    assert update(cluster, (name, 2, 1)).error_code == INVALID_UPDATE_VERSION
    assert update(cluster, (name, 1, 1)).error_code == NONE
    assert finalized_features(cluster.image) == FINALIZED


def test_no_change_is_no_write(cluster: Cluster) -> None:
    before = cluster.image
    assert update(cluster, ("metadata.version", 30, 1)) == FeaturesResult()
    assert update(cluster, ("test.version", 2, 1), validate_only=True) == FeaturesResult()
    assert update(cluster) == FeaturesResult()
    assert cluster.image is before


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (("no.such", 1, 1), "does not support this feature"),
        (("test.version", 4, 1), "only supports versions 0-3"),
        (("test.version", -1, 1), "cannot be less than 0"),
        (("test.version", 1, 0), "upgrade type"),
        (("test.version", 1, 4), "upgrade type"),
        (("test.version", 3, SAFE_DOWNGRADE), "Can't downgrade to a newer version."),
        (("test.version", 3, UNSAFE_DOWNGRADE), "Can't downgrade to a newer version."),
        (("metadata.version", 29, 1), "Can't downgrade"),
        (("metadata.version", 29, SAFE_DOWNGRADE), "Unsupported metadata.version downgrade"),
        (("metadata.version", 29, UNSAFE_DOWNGRADE), "Unsupported metadata.version downgrade"),
    ],
)
def test_one_refusal_refuses_all(
    cluster: Cluster, refused: tuple[str, int, int], words: str
) -> None:
    result = update(cluster, ("test.version", 2, 1), refused)
    assert result.error_code == INVALID_UPDATE_VERSION
    assert result.error_message is not None
    assert words in result.error_message
    assert "test.version" not in cluster.image.features


def test_it_rests_on_the_version_that_was_read(cluster: Cluster) -> None:
    decision = decide_update_features(cluster.image, [FeatureUpdate("test.version", 1)])
    (write,) = [each for each in decision.writes if each.path == paths.FEATURES]
    assert getattr(write, "expected_version", None) == 0
