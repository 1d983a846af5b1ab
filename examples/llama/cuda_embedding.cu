// Token ids to the device, and the embedding table.
#include <algorithm>

#include "device/device.h"
#include "device/status.h"
#include "examples/llama/cuda_kernel.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

constexpr int kThreads = 256;

// As many as fit into the arguments of every launch: 4 KiB less pointers and counts.
constexpr int kIdsOfLaunch = 960;
struct Ids {
  int32_t ids[kIdsOfLaunch];
};

__global__ void LoadIdsKernel(Ids from, int count, int32_t* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = from.ids[i];
}

// One block copies one row, in chunks of type C.
template <class C>
__global__ void GatherRowsKernel(const int32_t* ids, int64_t chunks, const C* table, C* out) {
  const C* from = table + ids[blockIdx.x] * chunks;
  C* to = out + int64_t{blockIdx.x} * chunks;
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) to[i] = from[i];
}

template <class C>
absl::Status GatherRows(const Stream& stream, const EmbeddingArguments& a, int64_t row_bytes,
                        const void* table, void* out) {
  return Launch(stream, "embedding", GatherRowsKernel<C>, a.tokens, kThreads, a.ids,
                row_bytes / static_cast<int64_t>(sizeof(C)), static_cast<const C*>(table),
                static_cast<C*>(out));
}

constexpr int kWarps = kThreads / kWarp;

// Bit i of matches[w]: token first + 32 w + i is before `end` and has the id. All threads of a
// block call, with a barrier between what they read of the last matches and the next call.
__device__ inline void FindMatches(const int32_t* ids, int64_t first, int64_t end, int32_t id,
                                   unsigned* matches) {
  const int64_t token = first + threadIdx.x;
  const unsigned ballot = __ballot_sync(kAllLanes, token < end && ids[token] == id);
  if (threadIdx.x % kWarp == 0) matches[threadIdx.x / kWarp] = ballot;
  __syncthreads();
}

// Block (t, segment): if t is the first token with its id, the block adds the rows of all tokens
// with that id, in order, to the id's row of the table. Each thread owns one pack of columns.
template <class T, bool kPacked>
__global__ void SumRowsKernel(EmbeddingArguments a, int64_t segments, const T* d_out, T* d_table) {
  constexpr int V = kVector<T>;
  ZERO_SHARED(unsigned, matches, kWarps);
  const int64_t token = blockIdx.x / segments, segment = blockIdx.x % segments;
  const int32_t id = a.ids[token];
  for (int64_t first = 0; first < token; first += kThreads) {
    FindMatches(a.ids, first, token, id, matches);
    unsigned any = 0;
    for (int warp = 0; warp < kWarps; ++warp) any |= matches[warp];
    __syncthreads();
    if (any != 0) return;
  }
  const int64_t column = (segment * kThreads + threadIdx.x) * V;
  float sum[V] = {};
  for (int64_t first = token; first < a.tokens; first += kThreads) {
    FindMatches(a.ids, first, a.tokens, id, matches);
    for (int warp = 0; warp < kWarps && column < a.width; ++warp) {
      for (unsigned left = matches[warp]; left != 0; left &= left - 1) {
        const int64_t row = first + warp * kWarp + __ffs(static_cast<int>(left)) - 1;
        float x[V];
        LoadPack<kPacked>(d_out + row * a.width + column, a.width - column, x);
        for (int i = 0; i < V; ++i) sum[i] += x[i];
      }
    }
    __syncthreads();
  }
  if (column >= a.width) return;
  T* to = d_table + id * a.width + column;
  float x[V];
  LoadPack<kPacked>(to, a.width - column, x);
  for (int i = 0; i < V; ++i) x[i] += sum[i];
  StorePack<kPacked>(x, a.width - column, to);
}

}  // namespace

absl::Status LoadIds(const Stream& stream, absl::Span<const int32_t> host, int32_t* device) {
  for (size_t first = 0; first < host.size(); first += kIdsOfLaunch) {
    const size_t count = std::min<size_t>(kIdsOfLaunch, host.size() - first);
    Ids ids = {};
    std::copy_n(host.data() + first, count, ids.ids);
    ZERO_RETURN_IF_ERROR(Launch(stream, "load ids", LoadIdsKernel, 1, kThreads, ids,
                                static_cast<int>(count), device + first));
  }
  return absl::OkStatus();
}

absl::Status EmbeddingForward(const Stream& stream, const EmbeddingArguments& arguments,
                              const void* table, void* out) {
  const int64_t row_bytes = arguments.width * SizeOf(arguments.dtype);
  const auto fits = [&](int64_t bytes) {
    return row_bytes % bytes == 0 && reinterpret_cast<uintptr_t>(table) % bytes == 0 &&
           reinterpret_cast<uintptr_t>(out) % bytes == 0;
  };
  if (fits(16)) return GatherRows<uint4>(stream, arguments, row_bytes, table, out);
  if (fits(4)) return GatherRows<uint32_t>(stream, arguments, row_bytes, table, out);
  return GatherRows<uint16_t>(stream, arguments, row_bytes, table, out);
}

absl::Status EmbeddingBackward(const Stream& stream, const EmbeddingArguments& arguments,
                               const void* d_out, void* d_table, bool accumulate) {
  if (!accumulate) {
    ZERO_RETURN_IF_ERROR(stream.device().Fill(
        stream, d_table, 0, arguments.vocab * arguments.width * SizeOf(arguments.dtype)));
  }
  return WithElement(arguments.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto* from = static_cast<const T*>(d_out);
    auto* to = static_cast<T*>(d_table);
    const bool packed = arguments.width % kVector<T> == 0 && PackAligned(from, kVector<T>) &&
                        PackAligned(to, kVector<T>);
    const int64_t segments = CeilDiv(arguments.width, int64_t{kThreads} * kVector<T>);
    return Launch(stream, "embedding backward",
                  packed ? SumRowsKernel<T, true> : SumRowsKernel<T, false>,
                  arguments.tokens * segments, kThreads, arguments, segments, from, to);
  });
}

}  // namespace zero::llama::cuda
