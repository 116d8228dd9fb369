"""Who gets which partitions: the assignors of the server side (KIP-848), by name."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.assignors.model import Assignor
from ottla.coordinator.assignors.range import assign_range
from ottla.coordinator.assignors.uniform import assign_uniform

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

# `group.consumer.assignors` may name Kafka's classes instead.
_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_CLASSES = {f"{_PACKAGE}UniformAssignor": "uniform", f"{_PACKAGE}RangeAssignor": "range"}


def known_assignors(configured: tuple[str, ...]) -> list[str]:
    """The names that members may ask for, the default first."""
    names = [_CLASSES.get(one, one) for one in configured]
    return [name for name in names if name in ASSIGNORS] or list(ASSIGNORS)
