"""What AlterConfigs and IncrementalAlterConfigs have in common: results per resource."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields
from ottla.metadata.controller import ConfigChange, ConfigResult, ThisBroker


def this_broker(context: Context) -> ThisBroker:
    return ThisBroker(context.services.broker_id, context.services.config)


def all_refused(
    changes: Sequence[ConfigChange], code: int, message: str | None
) -> list[ConfigResult]:
    return [
        ConfigResult(change.resource_type, change.resource_name, code, message)
        for change in changes
    ]


def answer(results: Sequence[ConfigResult]) -> Fields:
    return {
        "throttle_time_ms": 0,
        "responses": [
            {
                "error_code": result.error_code,
                "error_message": result.error_message,
                "resource_type": result.resource_type,
                "resource_name": result.resource_name,
            }
            for result in results
        ],
    }
