#include <algorithm>
#include <limits>

#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/device_check.h"
#include "kernels/host_loop.h"
#include "kernels/kernels.h"
#include "kernels/norm_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// NormChunkMath with the lanes of the tree spread over vectors.
template <class T>
NormPartial NormChunk(const T* x, int64_t n, int64_t first) {
  const hn::CappedTag<double, kNormLanes> d;
  const hn::Rebind<float, decltype(d)> d32;
  constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int64_t kVectors = kNormLanes / kWidth;
  hn::Vec<decltype(d)> sums[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) sums[k] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kNormLanes <= n; i += kNormLanes) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto wide = hn::PromoteTo(d, LoadElements(d32, x + i + k * kWidth));
      sums[k] = hn::Add(sums[k], hn::Mul(wide, wide));
    }
  }
  double lanes[kNormLanes];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], d, lanes + k * kWidth);
  for (int64_t l = 0; i < n; ++l, ++i) lanes[l] += SquareMath(x[i]);

  NormPartial partial;
  partial.sum_of_squares = AddLanesMath(lanes);
  // 2,048 squares of finite fp32 stay far below the largest double, and squares do not cancel: a
  // finite sum has finite terms only, so the elements need no second look.
  if (!(partial.sum_of_squares <= std::numeric_limits<double>::max())) {
    CountNonFiniteMath(x, n, first, &partial);
  }
  return partial;
}

// `begin` is a multiple of kNormChunk.
void NormPiece(const void* in, DType type, NormPartial* chunks, int64_t begin, int64_t end) {
  WithElementType(type, [=](auto t) {
    const auto* x = static_cast<const decltype(t)*>(in);
    for (int64_t i = begin; i < end; i += kNormChunk) {
      chunks[i / kNormChunk] = NormChunk(x + i, std::min(kNormChunk, end - i), i);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(NormPiece);

absl::Status Norm(const Stream& stream, const void* in, DType type, int64_t n, NormPartial* scratch,
                  NormPartial* out) {
  ZERO_RETURN_IF_ERROR(CheckCount("Norm", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Norm", "in", in));
  ZERO_RETURN_IF_ERROR(CheckPointer("Norm", "scratch", scratch));
  ZERO_RETURN_IF_ERROR(CheckPointer("Norm", "out", out));
  if (OnCuda(stream)) return cuda::Norm(stream, in, type, n, scratch, out);
  return stream.Enqueue("norm", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(NormPiece)(in, type, scratch, begin, end);
    });
    *out = AddChunksMath(scratch, NormChunks(n));
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
