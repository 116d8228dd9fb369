"""Settings of Spark that pipelines on this machine want, and why."""

from __future__ import annotations

from typing import Any, Final

# By default each batch starts dozens of `chmod` and `readlink` processes for its checkpoint files,
# because pip brings no native Hadoop library: 130 ms a batch become 30, with `without_checksums`.
# For local paths only; on object stores the defaults are right.
LOCAL_CHECKPOINTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

# How long Spark and its Python processes wait for each other's first word: on a busy machine a
# process may need more than the usual 15 seconds to come to that.
PATIENCE: Final = {"spark.python.authenticate.socketTimeout": "10m"}
# The same for those of its processes that it does not tell.
PATIENT_ENVIRONMENT: Final = {"SPARK_AUTH_SOCKET_TIMEOUT": "600"}


def without_checksums(session: Any) -> None:
    """No file of sums beside each local file: half of the files, and of those processes. Not by
    Hadoop's file system without sums (`fs.file.impl`): RocksDB's state store refuses that."""
    files = session._jvm.org.apache.hadoop.fs.FileSystem
    local = files.getLocal(session._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)
