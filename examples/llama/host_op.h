// How operations are checked, and those of the host enqueued and shared out to threads.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "device/dtype.h"
#include "device/host_device.h"
#include "device/stream.h"
#include "examples/llama/element.h"
#include "examples/llama/ops.h"

namespace zero::llama {

// Whether an operation is cuda_ops.h's to do.
inline bool OnCuda(const Stream& stream) { return stream.device().kind() == DeviceKind::kCuda; }

inline absl::Status CheckAttention(const char* name, const AttentionArguments& a) {
  if (a.kv_heads > 0 && a.heads % a.kv_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", a.heads, " query heads cannot share ",
                                                 a.kv_heads, " key-value heads evenly"));
}

// Enqueues body(begin, end) over pieces of [0, n), each a multiple of `grain` but the last, on the
// threads of the device's pool. What `body` computes must not depend on where the pieces begin.
template <class Body>
absl::Status EnqueueLoop(const Stream& stream, const char* name, int64_t n, int64_t grain,
                         Body body) {
  return stream.Enqueue(name, [pool = HostPool(stream), n, grain, body = std::move(body)] {
    ParallelFor(pool, n, grain, body);
    return absl::OkStatus();
  });
}

// As many rows as make a piece of work that is worth a thread's while.
inline int64_t RowGrain(int64_t width) {
  constexpr int64_t kElements = 1 << 14;
  return width >= kElements ? 1 : (kElements + width - 1) / (width > 0 ? width : 1);
}

// Calls f with a null pointer of the element type that `dtype` stands for.
template <class F>
auto WithElement(DType dtype, F f) {
  return WithElementType(dtype,
                         [&](auto element) { return f(static_cast<decltype(element)*>(nullptr)); });
}

}  // namespace zero::llama
