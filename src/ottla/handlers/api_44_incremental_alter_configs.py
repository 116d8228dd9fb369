"""IncrementalAlterConfigs 0-1: sets, deletes, appends to and subtracts from settings (KIP-339).

Levels of loggers (KIP-412) are changed here and now and last until the process ends; everything
else is the controller's.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers import broker_loggers
from ottla.handlers.config_changes import all_refused, answer, this_broker
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, ask_controller
from ottla.metadata.config_control import BROKER_LOGGER
from ottla.metadata.controller import (
    ConfigChange,
    ConfigResult,
    Decision,
    decide_incremental_alter_configs,
)
from ottla.metadata.image import MetadataImage

API_KEY = 44
VERSIONS = (0, 1)


def handle(context: Context, request: Any) -> Deferred[Fields]:
    changes = [_change(resource) for resource in request.resources]
    stored = [change for change in changes if change.resource_type != BROKER_LOGGER]
    levels = [change for change in changes if change.resource_type == BROKER_LOGGER]
    broker = this_broker(context)

    def decide(image: MetadataImage) -> Decision[list[ConfigResult]]:
        return decide_incremental_alter_configs(
            image, stored, broker=broker, validate_only=request.validate_only
        )

    def respond(results: list[ConfigResult]) -> Fields:
        level_results = broker_loggers.alter(
            context.services.broker_id, levels, validate_only=request.validate_only
        )
        return answer(_in_order(changes, results, level_results))

    def refuse(code: int, message: str | None) -> Fields:
        return answer(all_refused(changes, code, message))

    return ask_controller(context, decide, respond, refuse)


def _change(resource: Any) -> ConfigChange:
    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        [(config.name, config.config_operation, config.value) for config in resource.configs],
    )


def _in_order(
    changes: list[ConfigChange], stored: list[ConfigResult], levels: list[ConfigResult]
) -> list[ConfigResult]:
    of_stored, of_levels = iter(stored), iter(levels)
    return [
        next(of_levels if change.resource_type == BROKER_LOGGER else of_stored)
        for change in changes
    ]
