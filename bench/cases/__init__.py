"""Every case, in the order of the table. A new one is added to the list of its file."""

from __future__ import annotations

from bench.case import Case
from bench.cases.cluster import CLUSTER_CASES
from bench.cases.compaction import COMPACTION_CASES
from bench.cases.consume import CONSUME_CASES
from bench.cases.crowd import CROWD_CASES
from bench.cases.groups import GROUP_CASES
from bench.cases.latency import LATENCY_CASES
from bench.cases.produce import PRODUCE_CASES
from bench.cases.start import START_CASES
from bench.cases.transactions import TRANSACTION_CASES

ALL_CASES: tuple[Case, ...] = (
    *PRODUCE_CASES,
    *CONSUME_CASES,
    *LATENCY_CASES,
    *CROWD_CASES,
    *START_CASES,
    *GROUP_CASES,
    *COMPACTION_CASES,
    *CLUSTER_CASES,
    *TRANSACTION_CASES,
)
