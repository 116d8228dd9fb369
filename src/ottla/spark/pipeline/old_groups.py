"""Consumer groups of queries that are forgotten: nobody commits to them again, so they would only
seem to fall behind. Those that a query made for itself are deleted; one that was named is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ottla.client.errors import NoBrokerError
from ottla.spark.tables.batch_offsets import positions_in


def groups_in(offset_logs: Iterable[str]) -> dict[str, list[str]]:
    """By their brokers; the texts are files of Spark's offset logs."""
    found: dict[str, set[str]] = {}
    for text in offset_logs:
        for position in positions_in(text):
            # As the source makes it: a prefix, and the end of the query's own name.
            prefix, _, rest = position.group_id.rpartition("-")
            if prefix and position.query.endswith(f"/{rest}"):
                found.setdefault(position.servers, set()).add(position.group_id)
    return {servers: sorted(groups) for servers, groups in found.items()}


def delete_groups(
    servers: str, client: Mapping[str, str], groups: list[str]
) -> Iterator[tuple[str, bool]]:
    """Each that is gone now, and whether it was there: what fails may fail behind the first."""
    from ottla.spark.client_view import ClientView, answers

    if not answers(client, servers):
        raise NoBrokerError(f"nothing answers at {servers}")
    view = ClientView({**client, "bootstrap.servers": servers})
    try:
        for group in groups:
            yield group, view.delete_group(group)
    finally:
        view.close()
