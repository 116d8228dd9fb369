"""How the members of a classic group share partitions: decided by one of them, its leader.

Pure functions of what the members say of themselves; bytes as Kafka's clients exchange them, so
that members of several languages can be in one group.
"""
