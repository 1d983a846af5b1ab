#include "absl/strings/str_cat.h"
#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/device_check.h"
#include "kernels/host_loop.h"
#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ordered_sum.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

template <class Part, class Out>
void OrderedSumLoop(const OrderedSumArguments& a, int64_t begin, int64_t end) {
  const Part* const parts = static_cast<const Part*>(a.parts);
  Out* const out = static_cast<Out*>(a.out);
  const int64_t count = a.part_count;
  const int64_t stride = a.part_stride;
  const bool accumulate = a.accumulate;
  ForEachVector(begin, end, [=](auto d, int64_t i) HWY_ATTR {
    auto sum = LoadElements(d, parts + i);
    for (int64_t p = 1; p < count; ++p) {
      sum = hn::Add(sum, LoadElements(d, parts + p * stride + i));
    }
    if (accumulate) sum = hn::Add(LoadElements(d, out + i), sum);
    StoreElements(d, sum, out + i);
  });
}

void OrderedSumPiece(const OrderedSumArguments& a, int64_t begin, int64_t end) {
  WithElementType(a.part_type, [&](auto part) {
    WithElementType(a.out_type, [&](auto out) {
      OrderedSumLoop<decltype(part), decltype(out)>(a, begin, end);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(OrderedSumPiece);

namespace {

absl::Status CheckOrderedSum(const OrderedSumArguments& a) {
  constexpr const char* kKernel = "OrderedSum";
  ZERO_RETURN_IF_ERROR(CheckCount(kKernel, a.n));
  if (a.part_count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(kKernel, ": part_count is ", a.part_count, ", below 1"));
  }
  if (a.part_stride < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kKernel, ": part_stride is ", a.part_stride, ", below 0"));
  }
  if (a.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer(kKernel, "parts", a.parts));
  ZERO_RETURN_IF_ERROR(CheckPointer(kKernel, "out", a.out));
  for (int64_t p = 0; p < a.part_count; ++p) {
    const char* part = static_cast<const char*>(a.parts) + p * a.part_stride * SizeOf(a.part_type);
    ZERO_RETURN_IF_ERROR(CheckOverlap(kKernel, part, a.part_type, "out", a.out, a.out_type, a.n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OrderedSum(const Stream& stream, const OrderedSumArguments& arguments) {
  ZERO_RETURN_IF_ERROR(CheckOrderedSum(arguments));
  if (arguments.n == 0) return absl::OkStatus();
  if (OnCuda(stream)) return cuda::OrderedSum(stream, arguments);
  return stream.Enqueue("ordered_sum", [arguments, pool = HostPool(stream)] {
    ParallelFor(pool, arguments.n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(OrderedSumPiece)(arguments, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
