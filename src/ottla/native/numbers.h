/* Numbers in bytes: big-endian ones of a header, and the zig-zag varints of records. */
#ifndef OTTLA_NUMBERS_H
#define OTTLA_NUMBERS_H

#include <stdint.h>
#include <string.h>

static inline uint16_t read_u16(const uint8_t *bytes) {
    uint16_t number;
    memcpy(&number, bytes, sizeof number);
    return __builtin_bswap16(number);
}

static inline uint32_t read_u32(const uint8_t *bytes) {
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return __builtin_bswap32(number);
}

static inline uint64_t read_u64(const uint8_t *bytes) {
    uint64_t number;
    memcpy(&number, bytes, sizeof number);
    return __builtin_bswap64(number);
}

static inline int64_t signed_of(uint64_t code) {
    return (int64_t)(code >> 1) ^ -(int64_t)(code & 1);
}

/* The varint of at most `bits` bits at *at, which then stands behind it. 0 if there is none before
 * `end`, or one with more bits: the same that records/varints.py refuses. */
static inline int read_code(const uint8_t **at, const uint8_t *end, int bits, uint64_t *code) {
    const uint8_t *next = *at;
    uint64_t sum = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (next >= end)
            return 0;
        uint64_t byte = *next++;
        uint64_t part = byte & 127;
        if (shift + 7 > bits && part >> (bits - shift))
            return 0;
        sum |= part << shift;
        if (byte < 128) {
            *code = sum;
            *at = next;
            return 1;
        }
    }
    return 0;
}

static inline int read_varint(const uint8_t **at, const uint8_t *end, int64_t *number) {
    uint64_t code;
    if (*at < end && **at < 128) {
        *number = signed_of(*(*at)++);
        return 1;
    }
    if (!read_code(at, end, 32, &code))
        return 0;
    *number = signed_of(code);
    return 1;
}

static inline int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *number) {
    uint64_t code;
    if (!read_code(at, end, 64, &code))
        return 0;
    *number = signed_of(code);
    return 1;
}

#endif
