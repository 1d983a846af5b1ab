// Ordinary memory of this machine, as the devices hand it out.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace zero {

// Fresh and freed memory holds kPoisonByte, a NaN in fp32, bf16 and fp16.
#if defined(ZERO_POISON) || !defined(NDEBUG)
inline constexpr bool kPoison = true;
#else
inline constexpr bool kPoison = false;
#endif
inline constexpr uint8_t kPoisonByte = 0xFF;

// kResourceExhausted for more than this machine has in all, used or not: the system may promise
// more, and kill the process when the pages are touched.
absl::Status CheckPhysicalMemory(int64_t bytes);

// `bytes` > 0, 64-byte aligned. kResourceExhausted.
absl::StatusOr<void*> AllocateMemory(int64_t bytes);
void FreeMemory(void* data, int64_t bytes);

}  // namespace zero
