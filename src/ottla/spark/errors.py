"""What can go wrong between Spark and a cluster, each with a message that says what to do.

Spark shows the text of an exception and little else, so the texts carry the names of things: the
option, the topic, the offsets, the remedy.
"""

from __future__ import annotations

from ottla.base.errors import OttlaError


class SparkError(OttlaError):
    """Base of what this room raises on purpose."""


class OptionError(SparkError):
    """An option that cannot be taken; the message names it."""


class DataLoss(SparkError):
    """Records that a query was owed are gone; the message names them and the way on."""


class TopicsChanged(SparkError):
    """A topic that was there exists no more, or is another one: what was planned must be anew."""


class OffsetError(SparkError):
    """A checkpoint holds offsets that are not of this source."""


class ReadStalled(SparkError):
    """Records that the broker has announced did not come in time."""


class SinkConflict(SparkError):
    """Somebody else owns the sink, or has undone what was written to it."""


class SinkLoss(SparkError):
    """A decided transaction was aborted before it could be committed: decided output is lost."""


class RowError(SparkError):
    """A row that cannot become a record."""
