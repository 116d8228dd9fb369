/* One record of a batch: where its parts are. */
#ifndef OTTLA_RECORD_H
#define OTTLA_RECORD_H

#include "numbers.h"

struct record {
    const uint8_t *start, *key, *value, *headers, *end;
    int64_t time_delta, offset_delta;
    int64_t key_length, value_length; /* -1 is null */
    int64_t header_count;
};

/* A field whose length stands before it; -1 is null where that is allowed. */
static inline int
read_field(const uint8_t **at, const uint8_t *end, int64_t least, const uint8_t **field,
           int64_t *length) {
    if (!read_varint(at, end, length) || *length < least || *length > end - *at)
        return 0;
    *field = *at;
    if (*length > 0)
        *at += *length;
    return 1;
}

static inline int skip_headers(const uint8_t *at, const uint8_t *end, int64_t count) {
    const uint8_t *field;
    int64_t length;
    for (; count; count--)
        if (!read_field(&at, end, 0, &field, &length) ||
            !read_field(&at, end, -1, &field, &length))
            return 0;
    return at == end;
}

/* The record at *at, which then stands behind it. 0 if its parts do not fill its own length, or
 * that leads past `end`: the rule of `_read_outline` in records/walk.py. */
static inline int read_record(const uint8_t **at, const uint8_t *end, struct record *record) {
    const uint8_t *next = *at;
    int64_t length;
    record->start = next;
    if (!read_varint(&next, end, &length) || length < 1 || length > end - next)
        return 0;
    end = next + length;
    next++; /* its attributes, which nobody uses */
    if (!read_varlong(&next, end, &record->time_delta) ||
        !read_varint(&next, end, &record->offset_delta) ||
        !read_field(&next, end, -1, &record->key, &record->key_length) ||
        !read_field(&next, end, -1, &record->value, &record->value_length) ||
        !read_varint(&next, end, &record->header_count) || record->header_count < 0)
        return 0;
    record->headers = next;
    record->end = *at = end;
    return skip_headers(next, end, record->header_count);
}

#endif
