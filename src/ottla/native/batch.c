#include "batch.h"

#include "crc32c.h"
#include "record.h"

enum {
    TRANSACTIONAL = 0x10,
    NO_TIMESTAMP = -1, /* no largest one is stored below it */
};

void read_batch_header(const uint8_t *bytes, struct batch *batch) {
    batch->base_offset = (int64_t)read_u64(bytes);
    batch->length = (int32_t)read_u32(bytes + 8);
    batch->leader_epoch = (int32_t)read_u32(bytes + 12);
    batch->magic = (int8_t)bytes[16];
    batch->checksum = read_u32(bytes + 17);
    batch->attributes = (int16_t)read_u16(bytes + BATCH_CHECKED_FROM);
    batch->last_offset_delta = (int32_t)read_u32(bytes + 23);
    batch->base_timestamp = (int64_t)read_u64(bytes + 27);
    batch->max_timestamp = (int64_t)read_u64(bytes + 35);
    batch->producer_id = (int64_t)read_u64(bytes + 43);
    batch->producer_epoch = (int16_t)read_u16(bytes + 51);
    batch->base_sequence = (int32_t)read_u32(bytes + 53);
    batch->record_count = (int32_t)read_u32(bytes + 57);
}

void write_batch_header(const struct batch *batch, uint8_t *bytes) {
    write_u64(bytes, (uint64_t)batch->base_offset);
    write_u32(bytes + 8, (uint32_t)batch->length);
    write_u32(bytes + 12, (uint32_t)batch->leader_epoch);
    bytes[16] = (uint8_t)batch->magic;
    write_u32(bytes + 17, batch->checksum);
    write_u16(bytes + BATCH_CHECKED_FROM, (uint16_t)batch->attributes);
    write_u32(bytes + 23, (uint32_t)batch->last_offset_delta);
    write_u64(bytes + 27, (uint64_t)batch->base_timestamp);
    write_u64(bytes + 35, (uint64_t)batch->max_timestamp);
    write_u64(bytes + 43, (uint64_t)batch->producer_id);
    write_u16(bytes + 51, (uint16_t)batch->producer_epoch);
    write_u32(bytes + 53, (uint32_t)batch->base_sequence);
    write_u32(bytes + 57, (uint32_t)batch->record_count);
}

int walk_records(const uint8_t *bytes, size_t size, int64_t count, struct walk *walk) {
    const uint8_t *at = bytes, *end = bytes + size;
    struct record record;
    walk->delta_max = INT64_MIN;
    walk->delta_min = INT64_MAX;
    walk->has_null_key = 0;
    for (int64_t index = 0; index < count; index++) {
        if (!read_record(&at, end, &record) || record.offset_delta != index)
            return 0;
        if (record.time_delta > walk->delta_max)
            walk->delta_max = record.time_delta;
        if (record.time_delta < walk->delta_min)
            walk->delta_min = record.time_delta;
        walk->has_null_key |= record.key_length < 0;
    }
    return at == end;
}

static int is_header_good(const struct batch *batch, size_t size) {
    return batch->base_offset == 0 && batch->length == (int64_t)size - BATCH_LENGTH_END &&
           batch->magic == BATCH_MAGIC && (batch->attributes & ~TRANSACTIONAL) == 0 &&
           batch->record_count > 0 &&
           batch->last_offset_delta == batch->record_count - 1 &&
           (batch->producer_id == -1 || (batch->producer_id >= 0 && batch->base_sequence >= 0 &&
                                         batch->producer_epoch >= 0));
}

int is_batch_good(const uint8_t *bytes, size_t size, const struct batch_rules *rules,
                  struct batch *batch) {
    struct walk walk;
    int64_t highest, lowest;
    if (size < BATCH_HEADER_BYTES || (int64_t)size > rules->bytes_max)
        return 0;
    read_batch_header(bytes, batch);
    if (!is_header_good(batch, size) ||
        crc32c(bytes + BATCH_CHECKED_FROM, size - BATCH_CHECKED_FROM) != batch->checksum ||
        !walk_records(bytes + BATCH_HEADER_BYTES, size - BATCH_HEADER_BYTES, batch->record_count,
                      &walk))
        return 0;
    if (__builtin_add_overflow(batch->base_timestamp, walk.delta_max, &highest) ||
        __builtin_add_overflow(batch->base_timestamp, walk.delta_min, &lowest))
        return 0;
    return highest == batch->max_timestamp && highest >= NO_TIMESTAMP &&
           highest <= rules->latest && lowest >= rules->earliest && !(rules->is_compacted && walk.has_null_key);
}
