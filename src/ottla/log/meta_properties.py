"""`meta.properties`: whose log dir this is. Version 1, as `kafka-storage format` writes it.

A dir of another cluster or node is refused (F18): its offsets mean something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.errors import ConfigError
from ottla.base.ports import Files
from ottla.log import properties_text
from ottla.log.storage_errors import storing

FILE_NAME = "meta.properties"
VERSION = "1"


@dataclass(slots=True)
class MetaProperties:
    """`directory_id` names the dir itself, in the 22 characters Kafka writes a UUID with."""

    cluster_id: str
    node_id: int
    directory_id: str


def read_meta_properties(files: Files, log_dir: str) -> MetaProperties | None:
    """None if the dir is new. ConfigError if the file is not of version 1 or not complete."""
    path = f"{log_dir}/{FILE_NAME}"
    with storing(path, "read"):
        if not files.exists(path):
            return None
        found = properties_text.parse(files.read(path).decode("utf-8", "replace"))
    if found.get("version") != VERSION:
        raise ConfigError(f"{path}: version {found.get('version')} is not supported, only 1 is")
    try:
        return MetaProperties(
            found["cluster.id"], int(found["node.id"]), found.get("directory.id", "")
        )
    except (KeyError, ValueError) as missing:
        raise ConfigError(f"{path}: {missing} is missing or not a number") from missing


def write_meta_properties(files: Files, log_dir: str, meta: MetaProperties) -> None:
    path = f"{log_dir}/{FILE_NAME}"
    properties = {
        "node.id": str(meta.node_id),
        "directory.id": meta.directory_id,
        "version": VERSION,
        "cluster.id": meta.cluster_id,
    }
    with storing(path, "write"):
        files.write_atomic(path, properties_text.render(properties).encode())


def check_owner(meta: MetaProperties, log_dir: str, cluster_id: str, node_id: int) -> None:
    """ConfigError unless the dir belongs to this node of this cluster."""
    if meta.cluster_id != cluster_id:
        raise ConfigError(
            f"{log_dir} belongs to cluster {meta.cluster_id}, this broker to {cluster_id}"
        )
    check_node(meta, log_dir, node_id)


def check_node(meta: MetaProperties, log_dir: str, node_id: int) -> None:
    if meta.node_id != node_id:
        raise ConfigError(f"{log_dir} belongs to node {meta.node_id}, this broker is {node_id}")
