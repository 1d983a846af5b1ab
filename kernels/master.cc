#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/device_check.h"
#include "kernels/host_loop.h"
#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/master.cc"
#include "hwy/foreach_target.h"

#include "kernels/master-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

void JoinPiece(const uint16_t* weight, const uint16_t* remainder, float* out, int64_t begin,
               int64_t end) {
  ForEachVector(begin, end, [=](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(LoadSplit(d, weight + i, remainder + i), d, out + i);
  });
}

void SplitPiece(const float* in, uint16_t* weight, uint16_t* remainder, int64_t begin,
                int64_t end) {
  ForEachVector(begin, end, [=](auto d, int64_t i) HWY_ATTR {
    StoreSplit(d, hn::LoadU(d, in + i), weight + i, remainder + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(JoinPiece);
HWY_EXPORT(SplitPiece);

absl::Status JoinMaster(const Stream& stream, const void* weight, const uint16_t* remainder,
                        float* out, int64_t n) {
  ZERO_RETURN_IF_ERROR(CheckCount("JoinMaster", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("JoinMaster", "weight", weight));
  ZERO_RETURN_IF_ERROR(CheckPointer("JoinMaster", "remainder", remainder));
  ZERO_RETURN_IF_ERROR(CheckPointer("JoinMaster", "out", out));
  if (OnCuda(stream)) return cuda::JoinMaster(stream, weight, remainder, out, n);
  return stream.Enqueue("join_master", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(JoinPiece)
      (static_cast<const uint16_t*>(weight), remainder, out, begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status SplitMaster(const Stream& stream, const float* in, void* weight, uint16_t* remainder,
                         int64_t n) {
  ZERO_RETURN_IF_ERROR(CheckCount("SplitMaster", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("SplitMaster", "in", in));
  ZERO_RETURN_IF_ERROR(CheckPointer("SplitMaster", "weight", weight));
  ZERO_RETURN_IF_ERROR(CheckPointer("SplitMaster", "remainder", remainder));
  if (OnCuda(stream)) return cuda::SplitMaster(stream, in, weight, remainder, n);
  return stream.Enqueue("split_master", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(SplitPiece)
      (in, static_cast<uint16_t*>(weight), remainder, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
