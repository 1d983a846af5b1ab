// Ordinary memory of this machine, as the devices hand it out.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

// Fresh and freed memory holds kPoisonByte, a NaN in fp32, bf16 and fp16.
#if defined(ZERO_POISON) || !defined(NDEBUG)
inline constexpr bool kPoison = true;
#else
inline constexpr bool kPoison = false;
#endif
inline constexpr uint8_t kPoisonByte = 0xFF;

// The most bytes that this process can hold now: what it has touched plus what the system still
// has, as the files of Linux below `root` say, and no more than its control group may have. The
// largest number where the system does not say.
int64_t HostMemoryLimit(const std::string& root = "");

// kResourceExhausted if `bytes` more, beside what AllocateMemory has given out in this process, are
// above HostMemoryLimit. For memory that is there at once, as pinned memory is: the system's own
// count has it from then on. Any thread.
absl::Status CheckHostMemory(int64_t bytes);

// `bytes` > 0; 64-byte aligned, and page-aligned if a page or more. kResourceExhausted, also as
// CheckHostMemory says: the system may promise more than it has, and kill the process when the
// pages are touched.
absl::StatusOr<void*> AllocateMemory(int64_t bytes);
void FreeMemory(void* data, int64_t bytes);

}  // namespace zero
