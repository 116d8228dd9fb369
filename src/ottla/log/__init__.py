"""Log: segments, indexes, producer state, epochs, recovery and retention of one partition.

Everything below `partition_log.PartitionLog` and `open_log.open_log` is this room's own business.
"""
