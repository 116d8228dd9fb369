"""Every bound in one place, each with the reason for its size.

A bound that a user may set is a configuration; what stands here is what a peer must not exceed
whatever the configuration says, or the default where Kafka has no setting for it.
"""

from __future__ import annotations

# A request other than Produce: the largest honest one is a CreateTopics of thousands of topics.
REQUEST_BYTES_MAX_OTHER_THAN_PRODUCE = 8 * 1024 * 1024

# Structs and strings that one request may hold; a million empty structs cost 114 MiB and 1.2 s.
REQUEST_OBJECTS_MAX = 100_000

# What an answer may hold, other than records: a request of 500 KB can ask a hundred thousand times
# for the same. The offsets of a thousand groups are half a million; as mappings they take a second.
RESPONSE_ENTRIES_MAX = 500_000

# The same of an answer that is made of encoded pieces: the settings of ten thousand topics with
# their documentation.
RESPONSE_BYTES_MAX = 128 * 1024 * 1024

# What a compressed batch may unpack to, whatever it declares: 8 MiB, or 64 times its own size.
DECOMPRESSED_BYTES_MAX = 8 * 1024 * 1024
DECOMPRESSED_RATIO_MAX = 64

# Above this a compressed batch is unpacked in the pool, not on the loop (about 100 µs).
LOOP_DECOMPRESS_BYTES_MAX = 64 * 1024

# Requests of one connection that wait for their answer; past it the connection is not read.
PIPELINED_REQUESTS_MAX = 64

# What is read from a connection at once.
READ_BYTES_MAX = 256 * 1024

# Requests that are waited for, so that they are handled together: Java's producer has five under
# way. No more bytes are waited for than can be read at once.
GATHERED_REQUESTS_MAX = 5

# Requests of one connection that are handled in one turn of the loop. As many small ones as are
# read at once, ten thousand, would have everybody else wait for hundreds of milliseconds.
TURN_REQUESTS_MAX = 64

# Connections whose answers of one turn of the loop are sent together, and bytes for each of them.
TURN_ANSWERS_MAX = 64
TURN_ANSWER_BYTES_MAX = 64 * 1024

# Bytes waiting to be sent to a peer before its requests are no longer read.
WRITE_BUFFER_BYTES_MAX = 1024 * 1024

# A fetch waits no longer for records, whatever its max_wait_ms says: it is answered without any.
FETCH_WAIT_MS_MAX = 600_000

# A peer that sends half a request or reads nothing for so long is closed.
FRAME_STALL_MS_MAX = 30_000
FIRST_REQUEST_MS_MAX = 10_000
WRITE_STALL_MS_MAX = 60_000

# A request that has begun to arrive has the time of a stall and what this rate needs; at one byte
# every 29 seconds it would never stall, and never end.
FRAME_BYTES_PER_SECOND_MIN = 16 * 1024

# Frames that have begun to arrive, over all connections: beyond it the one that began first is
# closed.
REQUEST_MEMORY_BYTES_MAX = 512 * 1024 * 1024

# An answer that a client takes: a fetch of fetch.max.bytes with a first batch of the largest size.
ANSWER_BYTES_MAX = 512 * 1024 * 1024

# What a client unpacks a fetched batch to: a broker may have taken more than ours would.
CLIENT_DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024

# Requests of this broker that wait for another one; past it the next one fails at once.
PEER_REQUESTS_MAX = 256

# An answer of another broker: what a follower asks for in one fetch, and one batch as large as any.
PEER_ANSWER_BYTES_MAX = 256 * 1024 * 1024

# Idempotent producers that a partition remembers (0.5 to 1.2 KB each); past it who has been idle
# for longest is forgotten, as after `producer.id.expiration.ms`. Kafka has no bound.
PARTITION_PRODUCERS_MAX = 100_000

# Partitions that are not here, for which a log dir was asked for all the same; past it the oldest
# wishes are forgotten. Kafka has no bound.
PREFERRED_LOG_DIRS_MAX = 10_000
