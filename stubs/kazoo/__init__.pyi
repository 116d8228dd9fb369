# What `ottla.runtime.zookeeper_connection` and the tests use of kazoo, which has no types itself.
