// Token ids to the device, and the embedding table.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "examples/llama/cuda_ops.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"

namespace zero::llama {
namespace {

// Sums the rows of d_out by id. Ids are visited in ascending order, the rows of one id in order.
template <class T>
void AddRows(const EmbeddingArguments& a, const T* d_out, T* d_table, bool accumulate) {
  const auto width = static_cast<size_t>(a.width);
  thread_local std::vector<int32_t> order;
  thread_local std::vector<float> sum;
  order.resize(static_cast<size_t>(a.tokens));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [ids = a.ids](int32_t left, int32_t right) {
    return ids[left] != ids[right] ? ids[left] < ids[right] : left < right;
  });
  if (!accumulate) std::fill(d_table, d_table + a.vocab * a.width, T());
  for (size_t first = 0; first < order.size();) {
    const int32_t id = a.ids[order[first]];
    sum.assign(width, 0.0f);
    for (; first < order.size() && a.ids[order[first]] == id; ++first) {
      const T* row = d_out + order[first] * a.width;
      for (size_t i = 0; i < width; ++i) sum[i] += ToFloat(row[i]);
    }
    T* to = d_table + id * a.width;
    for (size_t i = 0; i < width; ++i) to[i] = FromFloat<T>(ToFloat(to[i]) + sum[i]);
  }
}

}  // namespace

absl::Status LoadIds(const Stream& stream, absl::Span<const int32_t> host, int32_t* device) {
  if (OnCuda(stream)) return cuda::LoadIds(stream, host, device);
  return stream.Enqueue("load ids", [ids = std::vector<int32_t>(host.begin(), host.end()), device] {
    std::copy(ids.begin(), ids.end(), device);
    return absl::OkStatus();
  });
}

absl::Status EmbeddingForward(const Stream& stream, const EmbeddingArguments& arguments,
                              const void* table, void* out) {
  if (OnCuda(stream)) return cuda::EmbeddingForward(stream, arguments, table, out);
  const int64_t bytes = arguments.width * SizeOf(arguments.dtype);
  return EnqueueLoop(stream, "embedding", arguments.tokens, RowGrain(arguments.width),
                     [=](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t) {
                         std::memcpy(static_cast<char*>(out) + t * bytes,
                                     static_cast<const char*>(table) + arguments.ids[t] * bytes,
                                     static_cast<size_t>(bytes));
                       }
                     });
}

absl::Status EmbeddingBackward(const Stream& stream, const EmbeddingArguments& arguments,
                               const void* d_out, void* d_table, bool accumulate) {
  if (OnCuda(stream)) {
    return cuda::EmbeddingBackward(stream, arguments, d_out, d_table, accumulate);
  }
  return stream.Enqueue("embedding backward", [=] {
    WithElement(arguments.dtype, [&](auto* t) {
      using T = std::remove_pointer_t<decltype(t)>;
      AddRows(arguments, static_cast<const T*>(d_out), static_cast<T*>(d_table), accumulate);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero::llama
