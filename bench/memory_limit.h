// The loops that show what this machine's memory can do.
#pragma once

#include <cstdint>

#include "device/thread_pool.h"

namespace zero::bench {

// a[i] = b[i] + 3 c[i]. Streamed: with stores that do not read the line first, so that 12 bytes an
// element cross the bus; a and n are multiples of 64 bytes and of 16 elements.
void StreamedTriad(ThreadPool* pool, float* a, const float* b, const float* c, int64_t n);
void PlainTriad(ThreadPool* pool, float* a, const float* b, const float* c, int64_t n);

}  // namespace zero::bench
