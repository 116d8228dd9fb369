"""What the members of a simulated group were told, and whether all of it can be true together.

Owns the properties (by their names in the reliability notes):
  G1  one owner per partition per generation, and everybody gets what the leader meant for it
  G3  an acknowledged commit never goes back, neither in a later answer nor after a restart
A violation is raised where it is seen, with what was told before.
"""

from __future__ import annotations


class Violation(AssertionError):
    """A property of groups does not hold."""


class Ledger:
    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}
        self._meant: dict[tuple[int, str], set[bytes]] = {}
        self._acknowledged: dict[int, int] = {}
        self.generations = 0
        self.commits = 0

    # -- assignments ------------------------------------------------------------------------

    def on_meant(self, generation: int, shares: dict[str, bytes]) -> None:
        """A leader has sent its assignment, by the names of the members."""
        for name, share in shares.items():
            # A generation that was not kept may come again, with another leader.
            self._meant.setdefault((generation, name), set()).add(share)

    def on_given(self, generation: int, name: str, share: bytes) -> list[int]:
        """A member was given its part; returns the partitions. `name` outlives its ids."""
        partitions = [int(part) for part in share.decode().split(",") if part]
        self.generations = max(self.generations, generation)
        if share and share not in self._meant.get((generation, name), ()):
            raise Violation(f"G1: {name} got {share!r}, which no leader of {generation} gave it")
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), name)
            if owner != name:
                raise Violation(
                    f"G1: partition {partition} belongs to {owner} and {name} "
                    f"in generation {generation}"
                )
        return partitions

    # -- commits ----------------------------------------------------------------------------

    def on_acknowledged(self, partition: int, offset: int, who: str) -> None:
        self.commits += 1
        before = self._acknowledged.get(partition, -1)
        if offset < before:
            raise Violation(f"G3: partition {partition} went from {before} to {offset} by {who}")
        self._acknowledged[partition] = offset

    def on_seen(self, partition: int, offset: int, where: str) -> None:
        """Somebody read this as committed; at least what was acknowledged has to be there."""
        before = self._acknowledged.get(partition, -1)
        if offset < before:
            raise Violation(f"G3: {before} was acknowledged for {partition}, {where} has {offset}")

    def acknowledged(self) -> dict[int, int]:
        return dict(self._acknowledged)
