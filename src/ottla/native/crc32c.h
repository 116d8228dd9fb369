/* The checksum of a batch: CRC-32C (Castagnoli), by the processor's own instruction. */
#ifndef OTTLA_CRC32C_H
#define OTTLA_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Whether this processor has the instruction. Asked once, before anything else here. */
int crc32c_prepare(void);

uint32_t crc32c(const uint8_t *bytes, size_t size);

#endif
