#include <vector>

#include "absl/strings/str_cat.h"
#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/device_check.h"
#include "kernels/host_sum.h"
#include "kernels/kernels.h"

namespace zero {
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
  return stream.Enqueue("ordered_sum", [a = arguments, pool = HostPool(stream)] {
    const int64_t stride = a.part_stride * SizeOf(a.part_type);
    std::vector<const void*> parts;
    for (int64_t p = 0; p < a.part_count; ++p) {
      parts.push_back(static_cast<const char*>(a.parts) + p * stride);
    }
    HostSum({parts, a.part_type, a.out, a.out_type, a.accumulate, a.n}, pool);
    return absl::OkStatus();
  });
}

}  // namespace zero
