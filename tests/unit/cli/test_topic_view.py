"""Goal: what is shown of a topic has something in every column.
Method: documents as a broker's answers become them, without any broker.
"""

from __future__ import annotations

import pytest

from ottla.cli.topic_view import show_topics


def test_a_partition_that_nobody_leads_and_nobody_is_in_sync_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition = {
        "partition": 0,
        "leader": None,
        "leader_epoch": 1,
        "replicas": [1, 2],
        "in_sync": [],
    }
    unknown = {"earliest_offset": None, "high_watermark": None, "lags": [None, 0]}
    topic = {"topic": "orders", "topic_id": "x", "replication_factor": 2, "size_bytes": None}
    show_topics(
        [topic | {"configs": {}, "partitions": [partition | unknown | {"size_bytes": None}]}]
    )
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split() == ["0", "-", "1", "1,2", "-", "-", "-", "?,0", "-"]
