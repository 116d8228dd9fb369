"""The Spark session of an engine, and what it hands to the processes below it.

Options that a project's files leave open are handed down by the environment: Spark's planners run
on this machine and inherit it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ottla.spark.java import java_environment
from ottla.spark.pipeline.project import Project
from ottla.spark.session import (
    LOCAL_CHECKPOINTS,
    PATIENCE,
    PATIENT_ENVIRONMENT,
    without_checksums,
)
from ottla.spark.worker_start import python_for_spark

DEFAULTS = {
    **PATIENCE,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Spark would wait for ever: see `ending`.
    "spark.sql.streaming.stopTimeout": "3s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session_settings(project: Project) -> dict[str, str]:
    """The project's own settings win over ours."""
    settings = dict(DEFAULTS)
    if project.is_local:
        settings.update(LOCAL_CHECKPOINTS)
        settings["spark.sql.warehouse.dir"] = project.place("warehouse")
    if project.settings.master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    settings.update(project.configuration)
    settings.update(project.settings.spark)
    return settings


def environment(project: Project) -> dict[str, str]:
    """For the sources and sinks of the project: see `ottla.spark.defaults`."""
    settings = project.settings
    is_here = settings.master.startswith("local")
    python = python_for_spark() if is_here else sys.executable
    # The environment goes before the setting in pyspark: said in the project, it is meant.
    python = session_settings(project).get("spark.pyspark.python", python)
    found = {
        **PATIENT_ENVIRONMENT,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python),
        "OTTLA_SPARK_GROUP": settings.group or project.name,
    }
    if settings.bootstrap_servers:
        found["OTTLA_BOOTSTRAP"] = os.environ.get("OTTLA_BOOTSTRAP", settings.bootstrap_servers)
    if settings.dead_letters:
        found["OTTLA_SPARK_DEAD_LETTERS"] = settings.dead_letters
    return found


def open_session(project: Project) -> Any:
    os.environ.update(environment(project))
    os.environ.update(java_environment())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(project.settings.master).appName(project.name)
    for name, value in session_settings(project).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("OTTLA_SPARK_LOG", "ERROR"))
    if project.is_local:
        without_checksums(session)
    if project.database:
        session.sql(f"CREATE DATABASE IF NOT EXISTS {project.database}")
        session.catalog.setCurrentDatabase(project.database)
    return session
