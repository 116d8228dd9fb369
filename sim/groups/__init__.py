"""Members that come, go, die and dawdle, around the real group shard over a log that can fail."""
