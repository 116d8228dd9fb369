"""Our source and sink on Ottla against Spark's stock connector on Apache Kafka."""
