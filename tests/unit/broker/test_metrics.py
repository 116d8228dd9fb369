"""Goal: a scrape tells what there is, and its text is not made on the loop."""

from __future__ import annotations

import threading
import urllib.request

import pytest

from ottla.broker import metrics
from ottla.broker.cluster_figures import ClusterFigures
from ottla.broker.metrics import Figures, exposition
from ottla.runtime.log_dir_reserve import Room
from ottla.runtime.request_stats import BUCKETS_NS
from ottla.testing import Broker
from tests.patience import SECONDS_MAX


def some_figures() -> Figures:
    return Figures(
        requests=[("Fetch", [1, 2, *[0] * (len(BUCKETS_NS) - 2), 4], 3_000_000_000)],
        bytes_in=10,
        bytes_out=20,
        connections_open=3,
        connections_opened=5,
        topics=2,
        offline_partitions=1,
        loop_lag_seconds=0.5,
        pool_threads=8,
        fetch_sessions=6,
        logs=[("t", 0, 100, 7, 9, 8), ("t", 1, 200, 0, 4, 4)],
        cluster=lambda: ClusterFigures(leaders=11),
        rooms=[Room("/disk", 4096, 8192, True)],
    )


def test_every_figure_is_told() -> None:
    lines = exposition(some_figures()).splitlines()
    for line in (
        'ottla_request_seconds_bucket{api="Fetch",le="5e-05"} 1.0',
        'ottla_request_seconds_bucket{api="Fetch",le="10.0"} 3.0',
        'ottla_request_seconds_count{api="Fetch"} 7.0',
        'ottla_request_seconds_sum{api="Fetch"} 3.0',
        "ottla_received_bytes_total 10.0",
        "ottla_sent_bytes_total 20.0",
        "ottla_connections_open 3.0",
        "ottla_connections_opened_total 5.0",
        "ottla_topics 2.0",
        "ottla_offline_partitions 1.0",
        "ottla_loop_lag_seconds 0.5",
        "ottla_handler_threads 8.0",
        "ottla_fetch_sessions 6.0",
        'ottla_log_dir_free_bytes{log_dir="/disk"} 4096.0',
        'ottla_log_dir_reserve_bytes{log_dir="/disk"} 8192.0',
        'ottla_log_dir_short_of_room{log_dir="/disk"} 1.0',
        'ottla_log_size_bytes{partition="1",topic="t"} 200.0',
        'ottla_log_start_offset{partition="0",topic="t"} 7.0',
        'ottla_log_end_offset{partition="0",topic="t"} 9.0',
        'ottla_high_watermark{partition="0",topic="t"} 8.0',
        "kafka_server_replicamanager_leadercount 11.0",
    ):
        assert line in lines


def test_a_scrape_does_not_hold_the_loop_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made_in: list[str] = []

    def noticed(figures: Figures) -> str:
        made_in.append(threading.current_thread().name)
        return exposition(figures)

    monkeypatch.setattr(metrics, "exposition", noticed)
    with Broker({"ottla.metrics.listener": "127.0.0.1:0"}) as broker:
        assert broker._node is not None
        address = f"http://127.0.0.1:{broker._node.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as page:
            text = page.read().decode()
    assert "ottla_topics 0.0" in text.splitlines()
    assert [name.startswith("ottla-handler") for name in made_in] == [True]
