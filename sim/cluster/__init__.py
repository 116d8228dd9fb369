"""A whole cluster in simulated time: the real brokers, but for their sockets, disks and store."""
