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

static inline void write_u16(uint8_t *bytes, uint16_t number) {
    number = __builtin_bswap16(number);
    memcpy(bytes, &number, sizeof number);
}

static inline void write_u32(uint8_t *bytes, uint32_t number) {
    number = __builtin_bswap32(number);
    memcpy(bytes, &number, sizeof number);
}

static inline void write_u64(uint8_t *bytes, uint64_t number) {
    number = __builtin_bswap64(number);
    memcpy(bytes, &number, sizeof number);
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

static inline uint64_t code_of(int64_t number) {
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline int varint_size(int64_t number) {
    int size = 1;
    for (uint64_t code = code_of(number); code > 127; code >>= 7)
        size++;
    return size;
}

/* Returns where the next byte goes. */
static inline uint8_t *write_varint(uint8_t *at, int64_t number) {
    uint64_t code = code_of(number);
    for (; code > 127; code >>= 7)
        *at++ = (uint8_t)(code | 128);
    *at++ = (uint8_t)code;
    return at;
}

#endif
