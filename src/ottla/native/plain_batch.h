/* A batch of records that somebody here has made: no headers, no compression, one timestamp. */
#ifndef OTTLA_PLAIN_BATCH_H
#define OTTLA_PLAIN_BATCH_H

#include "batch.h"

struct plain_record {
    const uint8_t *key, *value;
    int64_t key_length, value_length; /* -1 is null */
};

/* How many bytes they take in a batch. */
size_t plain_batch_size(const struct plain_record *records, int32_t count);

/* Writes them to `bytes`, which has room for as many, and what the header says to `batch`. */
void write_plain_batch(const struct plain_record *records, int32_t count, int64_t timestamp,
                       uint8_t *bytes, size_t size, struct batch *batch);

#endif
