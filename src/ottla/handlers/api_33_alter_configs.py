"""AlterConfigs 0-2: replaces all settings of a resource; what is not named goes back to default."""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.config_changes import all_refused, answer, this_broker
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, ask_controller
from ottla.metadata.configs.alter import SET
from ottla.metadata.controller import (
    ConfigChange,
    ConfigResult,
    Decision,
    decide_alter_configs,
)
from ottla.metadata.image import MetadataImage

API_KEY = 33
VERSIONS = (0, 2)


def handle(context: Context, request: Any) -> Deferred[Fields]:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, SET, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    broker = this_broker(context)

    def decide(image: MetadataImage) -> Decision[list[ConfigResult]]:
        return decide_alter_configs(
            image, changes, broker=broker, validate_only=request.validate_only
        )

    def refuse(code: int, message: str | None) -> Fields:
        return answer(all_refused(changes, code, message))

    return ask_controller(context, decide, answer, refuse)
