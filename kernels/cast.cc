#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/device_check.h"
#include "kernels/host_loop.h"
#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

template <class In, class Out>
void CastLoop(const In* in, Out* out, int64_t begin, int64_t end) {
  ForEachVector(begin, end, [=](auto d, int64_t i) HWY_ATTR {
    StoreElements(d, LoadElements(d, in + i), out + i);
  });
}

void CastPiece(const void* in, DType in_type, void* out, DType out_type, int64_t begin,
               int64_t end) {
  WithElementType(in_type, [=](auto from) {
    WithElementType(out_type, [=](auto to) {
      CastLoop(static_cast<const decltype(from)*>(in), static_cast<decltype(to)*>(out), begin, end);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(CastPiece);

absl::Status Cast(const Stream& stream, const void* in, DType in_type, void* out, DType out_type,
                  int64_t n) {
  ZERO_RETURN_IF_ERROR(CheckCount("Cast", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Cast", "in", in));
  ZERO_RETURN_IF_ERROR(CheckPointer("Cast", "out", out));
  ZERO_RETURN_IF_ERROR(CheckOverlap("Cast", in, in_type, "out", out, out_type, n));
  if (OnCuda(stream)) return cuda::Cast(stream, in, in_type, out, out_type, n);
  return stream.Enqueue("cast", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(CastPiece)(in, in_type, out, out_type, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
