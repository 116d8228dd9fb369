/* A batch at the produce door. */
#ifndef OTTLA_BATCH_H
#define OTTLA_BATCH_H

#include <stddef.h>
#include <stdint.h>

enum {
    BATCH_HEADER_BYTES = 61,
    BATCH_LENGTH_END = 12,
    BATCH_CHECKED_FROM = 21, /* the attributes */
    BATCH_MAGIC = 2,
};

struct batch {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    int32_t length, leader_epoch, last_offset_delta, base_sequence, record_count;
    uint32_t checksum;
    int16_t attributes, producer_epoch;
    int8_t magic;
};

struct walk {
    int64_t delta_max, delta_min; /* of the timestamps */
    int has_null_key;
};

/* What a topic asks of a batch. */
struct batch_rules {
    int64_t bytes_max;
    int64_t earliest, latest; /* timestamps */
    int is_compacted;
};

void read_batch_header(const uint8_t *bytes, struct batch *batch);
void write_batch_header(const struct batch *batch, uint8_t *bytes);

/* Whether [bytes, bytes + size) are exactly `count` records in order. */
int walk_records(const uint8_t *bytes, size_t size, int64_t count, struct walk *walk);

/* Whether this is one plain batch that is to be stored as it came. 0 says nothing of the reason. */
int is_batch_good(const uint8_t *bytes, size_t size, const struct batch_rules *rules,
                  struct batch *batch);

#endif
