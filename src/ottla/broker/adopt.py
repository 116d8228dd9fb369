"""`ottla cluster adopt`: the metadata of a stopped single node moves into an empty ZooKeeper, once.

The data stays where it is, and so does the broker's id; afterwards the node is the first broker of
a cluster. The cluster's id is written last: until it is there no broker takes the store for its
own, and an adoption that was interrupted can be done again. Then the old file gets another name, so
that the node can't go on alone with what the cluster will change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla.log.log_dir import LogDir
from ottla.metadata import nodes, paths
from ottla.metadata.configs.zookeeper import ZooKeeperSettings
from ottla.metadata.store import ABSENT, Node, StoreRefused, Write
from ottla.runtime.clocks import SystemClock
from ottla.runtime.embedded_store import ADOPTED_FILE_NAME, FILE_NAME, EmbeddedStore
from ottla.runtime.posix_files import PosixFiles
from ottla.runtime.zookeeper_store import ZooKeeperStore

# As decisions are split: far below what ZooKeeper takes in one commit.
NODES_AT_ONCE = 200
BYTES_AT_ONCE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Adoption:
    cluster_id: str
    broker_id: int
    topic_count: int


def adopt(directory: str, settings: ZooKeeperSettings) -> Adoption:
    """`directory` is the node's first log dir. Raises StoreRefused, StoreUnavailable and
    ConfigError."""
    directory = os.path.abspath(directory)
    path = os.path.join(directory, FILE_NAME)
    adopted = os.path.join(directory, ADOPTED_FILE_NAME)
    if os.path.exists(adopted):
        raise StoreRefused(f"the metadata in {directory} has been adopted already")
    if not os.path.exists(path):
        raise StoreRefused(f"there is no single node in {directory}: it would have a {FILE_NAME}")
    files = PosixFiles()
    log_dir = LogDir.open(files, directory)
    try:
        present = _read(directory)
        adoption = _write(present, settings)
        files.rename(path, adopted)
        # After a loss of power it would have its old name again, and the node start alone.
        files.sync_dir(directory)
    finally:
        log_dir.release()
    return adoption


def _read(directory: str) -> dict[str, Node]:
    """What outlives the node's process: who is alive and who is controller is found out anew."""
    store = EmbeddedStore(directory)
    try:
        found = store.load().nodes
    finally:
        store.close()
    if paths.CLUSTER_ID not in found:
        raise StoreRefused(f"the node in {directory} has never been started")
    return {
        path: node
        for path, node in found.items()
        if path != paths.CONTROLLER and not path.startswith(paths.BROKER_IDS)
    }


def _write(present: Mapping[str, Node], settings: ZooKeeperSettings) -> Adoption:
    cluster_id = nodes.read_cluster_id(paths.CLUSTER_ID, present[paths.CLUSTER_ID].content)
    store = ZooKeeperStore(settings, SystemClock())
    try:
        there = store.load().nodes
        _check(there, present, cluster_id)
        missing = {path: node for path, node in present.items() if path not in there}
        for bundle in _bundles(missing):
            store.commit(bundle)
    finally:
        store.close()
    topics = [path for path in present if path.startswith(paths.TOPICS) and path.count("/") == 3]
    brokers = [path for path in present if path.startswith(paths.BROKER_EPOCHS)]
    return Adoption(cluster_id, int(brokers[0].removeprefix(paths.BROKER_EPOCHS)), len(topics))


def _check(there: Mapping[str, Node], present: Mapping[str, Node], cluster_id: str) -> None:
    """Nothing may be there but what an interrupted adoption of this same node has written."""
    if paths.CLUSTER_ID in there:
        owner = nodes.read_cluster_id(paths.CLUSTER_ID, there[paths.CLUSTER_ID].content)
        if owner != cluster_id:
            raise StoreRefused(f"the ZooKeeper there belongs to cluster {owner}")
    strangers = [
        path
        for path, node in there.items()
        if path not in present or present[path].content != node.content
    ]
    if strangers:
        raise StoreRefused(
            f"the ZooKeeper there is not empty: it has {strangers[0]}"
            + (f" and {len(strangers) - 1} more" if strangers[1:] else "")
        )


def _bundles(missing: Mapping[str, Node]) -> Iterator[list[Write]]:
    """Parents before what is below them; the cluster's id last and alone."""
    bundle: list[Write] = []
    size = 0
    for path in sorted(missing, key=lambda path: (path == paths.CLUSTER_ID, path.count("/"), path)):
        write = Write(path, missing[path].content, ABSENT)
        full = len(bundle) == NODES_AT_ONCE or size + len(missing[path].content) > BYTES_AT_ONCE
        if bundle and (full or path == paths.CLUSTER_ID):
            yield bundle
            bundle, size = [], 0
        bundle.append(write)
        size += len(path) + len(missing[path].content)
    if bundle:
        yield bundle
