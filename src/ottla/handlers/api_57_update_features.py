"""UpdateFeatures 0-2: the levels of features that the cluster agrees on; all updates or none.

Up to v1 each feature has a result of its own; they are empty when the whole request is refused.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, ask_controller
from ottla.metadata.controller import (
    Decision,
    FeaturesResult,
    FeatureUpdate,
    decide_update_features,
)
from ottla.metadata.features import SAFE_DOWNGRADE, UPGRADE
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import NONE

API_KEY = 57
VERSIONS = (0, 2)


def handle(context: Context, request: Any) -> Deferred[Fields]:
    updates = [_update(context.api_version, each) for each in request.feature_updates]

    def decide(image: MetadataImage) -> Decision[FeaturesResult]:
        return decide_update_features(image, updates, validate_only=request.validate_only)

    def respond(result: FeaturesResult) -> Fields:
        return _answer(result, updates if result.error_code == NONE else [])

    def refuse(code: int, message: str | None) -> Fields:
        return _answer(FeaturesResult(code, message), [])

    return ask_controller(context, decide, respond, refuse)


def _update(version: int, update: Any) -> FeatureUpdate:
    upgrade_type = update.upgrade_type
    if version == 0:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)


def _answer(result: FeaturesResult, updated: list[FeatureUpdate]) -> Fields:
    return {
        "throttle_time_ms": 0,
        "error_code": result.error_code,
        "error_message": result.error_message,
        "results": [
            {"feature": update.name, "error_code": NONE, "error_message": None}
            for update in updated
        ],
    }
