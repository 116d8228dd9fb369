"""Which versions this client speaks, and which of them a broker and it have in common.

Owns the table. A key that stands in it is spoken from its lowest to its highest version there; one
that does not, in every version of which the protocol has a schema. The highest common version is
taken. Never sends a request in a version that the broker did not announce (KIP-35).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.errors import UnsupportedByBrokerError
from ottla.protocol import api_keys, messages

Range = tuple[int, int]

# The lowest are those of the record format that is still in use, the highest what is known here.
_SPOKEN: dict[int, Range] = {
    api_keys.PRODUCE: (3, 13),
    api_keys.FETCH: (4, 17),
    api_keys.METADATA: (1, 13),
    api_keys.API_VERSIONS: (0, 4),
    api_keys.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    api_keys.ADD_PARTITIONS_TO_TXN: (0, 3),  # 4 on are the brokers' own
}

FeatureLevels = Mapping[str, int]


class BrokerVersions:
    """What one broker announced: its range for each key, and the finalized features."""

    __slots__ = ("_chosen", "features", "features_epoch", "ranges")

    def __init__(
        self, ranges: Mapping[int, Range], features: FeatureLevels, features_epoch: int
    ) -> None:
        self.ranges = ranges
        self.features = features
        self.features_epoch = features_epoch
        self._chosen: dict[tuple[int, int | None, int | None], int] = {}

    def choose(self, api_key: int, low: int | None = None, high: int | None = None) -> int:
        """The highest common version, within bounds of the request's own."""
        asked = (api_key, low, high)
        chosen = self._chosen.get(asked)
        if chosen is None:
            chosen = self._choose(api_key, low or 0, 1 << 15 if high is None else high)
            self._chosen[asked] = chosen
        return chosen

    def _choose(self, api_key: int, low: int, high: int) -> int:
        name = api_keys.name_of(api_key)
        announced = self.ranges.get(api_key)
        if announced is None:
            raise UnsupportedByBrokerError(f"the broker does not serve {name}")
        spoken = _SPOKEN.get(api_key) or messages.supported_versions(api_key)
        lowest = max(low, announced[0], spoken[0])
        highest = min(high, announced[1], spoken[1])
        if highest < lowest:
            raise UnsupportedByBrokerError(
                f"the broker serves {name} {announced[0]} to {announced[1]}, which has nothing in"
                f" common with {max(low, spoken[0])} to {min(high, spoken[1])}"
            )
        return highest


def versions_of(answer: Any) -> BrokerVersions:
    """From a decoded ApiVersions answer without an error."""
    ranges = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    features = {one.name: one.max_version_level for one in answer.finalized_features}
    return BrokerVersions(ranges, features, answer.finalized_features_epoch)
