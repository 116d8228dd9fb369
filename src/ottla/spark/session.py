"""Settings of Spark that pipelines on this machine want, and why."""

from __future__ import annotations

from typing import Final

# By default each batch starts dozens of `chmod` and `readlink` processes for its checkpoint files,
# because pip brings no native Hadoop library: 130 ms a batch become 30. For local paths only; on
# object stores the defaults are right.
LOCAL_CHECKPOINTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

# How long Spark and its Python processes wait for each other's first word: on a busy machine a
# process may need more than the usual 15 seconds to come to that.
PATIENCE: Final = {"spark.python.authenticate.socketTimeout": "10m"}
# The same for those of its processes that it does not tell.
PATIENT_ENVIRONMENT: Final = {"SPARK_AUTH_SOCKET_TIMEOUT": "600"}
