// CRC32C, the checksum of checkpoints.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace zero {

// The CRC32C (Castagnoli's polynomial, reflected 0x82F63B78, all bits inverted before and after) of
// some bytes, given that of the bytes before them, 0 at first: Crc32c(Crc32c(0, a), b) is that of a
// and b. With the instruction of x86 CPUs that have it, else by table.
uint32_t Crc32c(uint32_t crc, absl::Span<const char> bytes);

// The same, always by table.
uint32_t Crc32cByTable(uint32_t crc, absl::Span<const char> bytes);

}  // namespace zero
