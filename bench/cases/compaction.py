"""What it costs to clean a log: 1 KB records, each key five times, in a broker that has cleaned
before. The policy of the topic becomes `compact` when all of it is written; the figures end when
everything but the segment that is being written is clean.
"""

from __future__ import annotations

import itertools
import re
import time

from bench.brokers import SHARED_SETTINGS, Broker
from bench.case import RELOAD, Case, Figure, Figures, cpu_per_gib
from bench.errors import BenchError
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.topics import alter_topic, create_topic, delete_topics

CLEANING_SECONDS_MAX = 300
VERSIONS_OF_A_KEY = 5
_POLL_S = 0.02
_SETTINGS = {**SHARED_SETTINGS, "log.cleaner.backoff.ms": "200"}
_names = itertools.count(1)


def compaction(side: Side, sizes: Sizes) -> Figures:
    def clean_some(broker: Broker) -> None:
        _clean(broker, sizes.compaction_records // 4)

    broker = side.beside("compaction", clean_some, _SETTINGS)
    return _clean(broker, sizes.compaction_records)


def _clean(broker: Broker, records: int) -> Figures:
    topic = f"compaction-{next(_names)}"
    create_topic(broker.bootstrap, topic, 1, **{"segment.bytes": str(16 * 2**20)})
    run_load(
        "rdkafka_keyed",
        bootstrap=broker.bootstrap,
        topic=topic,
        records=records,
        keys=records // VERSIONS_OF_A_KEY,
        size=KIB,
    )
    directory = broker.data / f"{topic}-0"
    written = sum(path.stat().st_size for path in directory.glob("*.log"))
    end = max(int(path.stem) for path in directory.glob("*.log"))
    before, begin = broker.cpu_seconds(), time.monotonic()
    alter_topic(
        broker.bootstrap, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    )
    while _cleaned_to(broker, topic) < end:
        if time.monotonic() - begin > CLEANING_SECONDS_MAX:
            raise BenchError(f"{topic} is not clean after {CLEANING_SECONDS_MAX} s")
        time.sleep(_POLL_S)
    used, seconds = broker.cpu_seconds() - before, time.monotonic() - begin
    left = sum(path.stat().st_size for path in directory.glob("*.log"))
    delete_topics(broker.bootstrap, topic)
    return {
        "cpu_s_per_gib": used / (written / 2**30),
        "cleaning_s": seconds,
        "left_share": left / written,
    }


def _cleaned_to(broker: Broker, topic: str) -> int:
    path = broker.data / "cleaner-offset-checkpoint"
    found = re.search(rf"^{topic} 0 (\d+)$", path.read_text() if path.exists() else "", re.M)
    return int(found[1]) if found else -1


COMPACTION_CASES = (
    Case(
        "compaction",
        "cleaning 1 KB records, each key five times",
        4,
        (
            cpu_per_gib(at_most=1.5),
            Figure("cleaning_s", "time", "s"),
            Figure("left_share", "what is left", "of it"),
        ),
        compaction,
        block=RELOAD,
    ),
)
