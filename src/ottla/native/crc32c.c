/* The instruction takes three cycles for eight bytes, but a new one can begin with each cycle. So
 * three parts of the bytes are summed side by side and the sums put together: summing is linear,
 * so a sum is moved past as many bytes as another part has by four look-ups in a table. */
#include "crc32c.h"

#include <nmmintrin.h>
#include <string.h>

#define SSE __attribute__((target("sse4.2")))

/* A part of three: large ones for whole batches, small ones for what is left of them. */
enum { LARGE = 1024, SMALL = 128 };

typedef uint32_t shift_table[4][256];

static shift_table past_large, past_small;

SSE static inline uint64_t eight_more(uint64_t sum, const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return _mm_crc32_u64(sum, word);
}

static inline uint32_t moved(const shift_table table, uint32_t sum) {
    return table[0][sum & 255] ^ table[1][(sum >> 8) & 255] ^ table[2][(sum >> 16) & 255] ^
           table[3][sum >> 24];
}

/* What becomes of each bit of a sum when `size` bytes of zero follow, and so of each byte. */
SSE static void fill(shift_table table, size_t size) {
    for (int place = 0; place < 4; place++) {
        uint32_t *row = table[place];
        row[0] = 0;
        for (int bit = 0; bit < 8; bit++) {
            uint64_t sum = 1u << (8 * place + bit);
            for (size_t done = 0; done < size; done += 8)
                sum = _mm_crc32_u64(sum, 0);
            for (int below = 0; below < 1 << bit; below++)
                row[(1 << bit) + below] = (uint32_t)sum ^ row[below];
        }
    }
}

int crc32c_prepare(void) {
    if (!__builtin_cpu_supports("sse4.2"))
        return 0;
    fill(past_large, LARGE);
    fill(past_small, SMALL);
    return 1;
}

SSE static inline uint32_t
three_parts(const shift_table table, uint32_t sum, const uint8_t *bytes, size_t part) {
    uint64_t first = sum, second = 0, third = 0;
    for (size_t at = 0; at < part; at += 8) {
        first = eight_more(first, bytes + at);
        second = eight_more(second, bytes + part + at);
        third = eight_more(third, bytes + 2 * part + at);
    }
    uint32_t joined = moved(table, (uint32_t)first) ^ (uint32_t)second;
    return moved(table, joined) ^ (uint32_t)third;
}

SSE uint32_t crc32c(const uint8_t *bytes, size_t size) {
    uint32_t sum = ~0u;
    for (; size >= 3 * LARGE; bytes += 3 * LARGE, size -= 3 * LARGE)
        sum = three_parts(past_large, sum, bytes, LARGE);
    for (; size >= 3 * SMALL; bytes += 3 * SMALL, size -= 3 * SMALL)
        sum = three_parts(past_small, sum, bytes, SMALL);
    for (; size >= 8; bytes += 8, size -= 8)
        sum = (uint32_t)eight_more(sum, bytes);
    for (; size; bytes++, size--)
        sum = _mm_crc32_u8(sum, *bytes);
    return ~sum;
}
