"""What can be wrong with a table."""

from __future__ import annotations

from ottla.client.errors import ClientError


class ColumnError(ClientError):
    """A column is missing, of a type that cannot be sent, or holds what its format is not."""
