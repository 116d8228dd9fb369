#include "plain_batch.h"

#include "crc32c.h"
#include "numbers.h"

static int64_t content_size(const struct plain_record *record, int32_t index) {
    int64_t size = 1 + 1 + varint_size(index); /* attributes, difference in time */
    size += varint_size(record->key_length) + (record->key_length < 0 ? 0 : record->key_length);
    size += varint_size(record->value_length) +
            (record->value_length < 0 ? 0 : record->value_length);
    return size + 1; /* no headers */
}

size_t plain_batch_size(const struct plain_record *records, int32_t count) {
    size_t size = BATCH_HEADER_BYTES;
    for (int32_t index = 0; index < count; index++) {
        int64_t content = content_size(&records[index], index);
        size += (size_t)(varint_size(content) + content);
    }
    return size;
}

static uint8_t *write_field(uint8_t *at, const uint8_t *field, int64_t length) {
    at = write_varint(at, length);
    if (length > 0) {
        memcpy(at, field, (size_t)length);
        at += length;
    }
    return at;
}

void write_plain_batch(const struct plain_record *records, int32_t count, int64_t timestamp,
                       uint8_t *bytes, size_t size, struct batch *batch) {
    uint8_t *at = bytes + BATCH_HEADER_BYTES;
    for (int32_t index = 0; index < count; index++) {
        at = write_varint(at, content_size(&records[index], index));
        *at++ = 0; /* attributes */
        *at++ = 0; /* difference in time */
        at = write_varint(at, index);
        at = write_field(at, records[index].key, records[index].key_length);
        at = write_field(at, records[index].value, records[index].value_length);
        *at++ = 0; /* headers */
    }
    *batch = (struct batch){
        .length = (int32_t)(size - BATCH_LENGTH_END),
        .leader_epoch = -1,
        .magic = BATCH_MAGIC,
        .last_offset_delta = count - 1,
        .base_timestamp = timestamp,
        .max_timestamp = timestamp,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = count,
    };
    write_batch_header(batch, bytes);
    batch->checksum = crc32c(bytes + BATCH_CHECKED_FROM, size - BATCH_CHECKED_FROM);
    write_u32(bytes + 17, batch->checksum);
}
