"""Why a setting of Kafka is taken without doing anything here; each is its documentation, too.

*Without effect* is for good, *without effect yet* waits for the part that will use it.
"""

from __future__ import annotations

ANY_BROKER = (
    "Accepted, without effect: brokers do not ask the controller, any of them decides and writes."
)
AT_ONCE = "Accepted, without effect: this is done at once, and again until it has succeeded."
BUDGET = (
    "Accepted, without effect: throttled replication has a budget that fills with time, no windows."
)
JAVA = "Accepted, without effect: it names Java classes, and Ottla runs none."
KRAFT = (
    "Accepted, without effect: metadata is kept in a local database or in ZooKeeper, "
    "there is no KRaft quorum."
)
METRICS = "Accepted, without effect: figures are served to Prometheus, there are no reporters."
NOT_COMPRESSED = "Accepted, without effect: what coordinators write is not compressed."
ONE_CLEANER = "Accepted, without effect: logs are cleaned one after the other."
ONE_FETCHER = (
    "Accepted, without effect: one connection to each leader copies all partitions that it leads."
)
ONE_LOOP = (
    "Accepted, without effect: one event loop does this work, there is no such queue or pool."
)
PAST = "Accepted, without effect: a name of the past that Kafka itself has given up."
PEERS = (
    "Accepted, without effect: replica.socket.timeout.ms is what bounds a connection to a broker."
)
PIECES = "Accepted, without effect: coordinators read their logs in pieces of 4 MiB."
TIERED = "Accepted, without effect: there is no tiered storage."
ZOOKEEPER = "Accepted, without effect: the way to ZooKeeper has no such choice here."

LOG_DIRS = "Accepted, without effect yet: log dirs that get nothing new are still to come."
QUOTAS = "Accepted, without effect yet: quotas of clients are still to come."
SECURITY = "Accepted, without effect yet: only PLAINTEXT is served so far."
SHARE_AND_STREAMS = "Accepted, without effect yet: share and streams groups are still to come."
