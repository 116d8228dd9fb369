"""Pipelines as a product: projects of Spark Declarative Pipelines, run always-on.

A project is what `spark-pipelines` takes, unmodified: `spark-pipeline.yml`, `transformations/`. Our
own settings stand beside it in `ottla.yml`. `engine` runs a project in one Spark session,
`supervisor` keeps an engine running, `control` is where commands and the two meet: files.
"""
