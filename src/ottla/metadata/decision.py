"""What the controller decides: operations on the store, and the answer once they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.metadata import paths
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import Check, Operation

R = TypeVar("R")


@dataclass(slots=True)
class Decision(Generic[R]):
    """No writes: there is nothing to change, `response` may be given at once."""

    writes: list[Operation]
    response: R


def decided(image: MetadataImage, writes: Sequence[Operation], response: R) -> Decision[R]:
    """Every write of a controller rests on its epoch (Z1): a successor makes all of them fail."""
    if not writes:
        return Decision([], response)
    epoch = Check(paths.CONTROLLER_EPOCH, image.version_of(paths.CONTROLLER_EPOCH))
    return Decision([epoch, *writes], response)
