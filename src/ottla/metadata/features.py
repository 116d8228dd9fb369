"""Features with a level that the whole cluster agrees on (KIP-584), and changing that level.

Only what is built is listed: a client switches its behaviour on by what it finds here, so a feature
comes in with the code that keeps its promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import Write
from ottla.protocol.error_codes import INVALID_UPDATE_VERSION, NONE

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 30),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
}
"""Feature -> lowest and highest level that this broker can work with (30 is 4.3-IV0).

Level 1 of `group.version` is the consumer protocol (KIP-848), level 2 of `transaction.version` an
epoch per transaction (KIP-890), level 1 of `eligible.leader.replicas.version` that who left an
in-sync set which became too small may lead (KIP-966). That one is kept at level 0, too: it only
ever elects who has everything, and a cluster without it would sooner lose something. Clients are
not told of it then.
"""

FINALIZED: Mapping[str, int] = {
    METADATA_VERSION: 30,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
}
"""The levels that a new cluster begins with."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = UPGRADE


class FeaturesResult(NamedTuple):
    """All updates are made or none."""

    error_code: int = NONE
    error_message: str | None = None


def finalized_features(image: MetadataImage) -> Mapping[str, int]:
    return image.features or FINALIZED


def has_eligible_leaders(image: MetadataImage) -> bool:
    """Whether clients are told who is eligible to lead."""
    return finalized_features(image).get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


def finalized_epoch(image: MetadataImage) -> int:
    """Grows with every change of a level; clients keep what has the highest one."""
    return max(image.version_of(paths.FEATURES), 0)


def decide_update_features(
    image: MetadataImage, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> Decision[FeaturesResult]:
    levels = dict(finalized_features(image))
    try:
        for update in updates:
            _check_update(update, levels.get(update.name, 0))
            _set_level(levels, update)
    except ProtocolError as error:
        message = "The update failed for all features since the following feature had an error: "
        return Decision([], FeaturesResult(error.code, message + error.message))
    if validate_only or levels == finalized_features(image):
        return Decision([], FeaturesResult())
    version = image.version_of(paths.FEATURES)
    write = Write(paths.FEATURES, nodes.features(levels), version)
    return decided(image, [write], FeaturesResult())


def _set_level(levels: dict[str, int], update: FeatureUpdate) -> None:
    if update.level == 0:
        levels.pop(update.name, None)
    else:
        levels[update.name] = update.level


def _check_update(update: FeatureUpdate, current: int) -> None:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _refused(update, "A feature version cannot be less than 0.")
    bounds = SUPPORTED.get(update.name)
    if bounds is None:
        raise _refused(update, "This broker does not support this feature.")
    lowest, highest = bounds
    if not lowest <= update.level <= highest:
        raise _refused(update, f"This broker only supports versions {lowest}-{highest}.")
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _refused(update, "Can't downgrade to a newer version.")
    if update.level >= current:
        return
    if update.upgrade_type == UPGRADE:
        raise _refused(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type "
            "to either safe or unsafe downgrade.",
        )
    if update.name == METADATA_VERSION:
        message = f"Unsupported metadata.version downgrade from {current} to {update.level}."
        raise ProtocolError(INVALID_UPDATE_VERSION, message)


def _refused(update: FeatureUpdate, reason: str) -> ProtocolError:
    message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
    return ProtocolError(INVALID_UPDATE_VERSION, message)
