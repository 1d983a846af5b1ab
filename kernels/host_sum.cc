#include "kernels/host_sum.h"

#include "absl/strings/str_cat.h"
#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/host_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host_sum.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

template <class Part, class Out>
void HostSumLoop(const HostSumArguments& a, int64_t begin, int64_t end) {
  const void* const* const parts = a.parts.data();
  const size_t count = a.parts.size();
  Out* const out = static_cast<Out*>(a.out);
  const bool accumulate = a.accumulate;
  const auto load = [=](auto d, size_t p, int64_t i) HWY_ATTR {
    return LoadElements(d, static_cast<const Part*>(parts[p]) + i);
  };
  const auto store = [=](auto d, auto sum, int64_t i) HWY_ATTR {
    if (accumulate) sum = hn::Add(LoadElements(d, out + i), sum);
    StoreElements(d, sum, out + i);
  };
  // Four sums at once: one alone would wait for each of its additions.
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    auto s0 = load(d, 0, i);
    auto s1 = load(d, 0, i + lanes);
    auto s2 = load(d, 0, i + 2 * lanes);
    auto s3 = load(d, 0, i + 3 * lanes);
    for (size_t p = 1; p < count; ++p) {
      s0 = hn::Add(s0, load(d, p, i));
      s1 = hn::Add(s1, load(d, p, i + lanes));
      s2 = hn::Add(s2, load(d, p, i + 2 * lanes));
      s3 = hn::Add(s3, load(d, p, i + 3 * lanes));
    }
    store(d, s0, i);
    store(d, s1, i + lanes);
    store(d, s2, i + 2 * lanes);
    store(d, s3, i + 3 * lanes);
  }
  ForEachVector(i, end, [=](auto tag, int64_t j) HWY_ATTR {
    auto sum = load(tag, 0, j);
    for (size_t p = 1; p < count; ++p) sum = hn::Add(sum, load(tag, p, j));
    store(tag, sum, j);
  });
}

void HostSumPiece(const HostSumArguments& a, int64_t begin, int64_t end) {
  WithElementType(a.part_type, [&](auto part) {
    WithElementType(a.out_type,
                    [&](auto out) { HostSumLoop<decltype(part), decltype(out)>(a, begin, end); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(HostSumPiece);

absl::Status CheckHostSum(const HostSumArguments& a) {
  constexpr const char* kKernel = "OrderedSum";
  ZERO_RETURN_IF_ERROR(CheckCount(kKernel, a.n));
  if (a.parts.empty()) return absl::InvalidArgumentError(absl::StrCat(kKernel, ": no parts"));
  if (a.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer(kKernel, "out", a.out));
  for (const void* part : a.parts) {
    ZERO_RETURN_IF_ERROR(CheckPointer(kKernel, "parts", part));
    ZERO_RETURN_IF_ERROR(CheckOverlap(kKernel, part, a.part_type, "out", a.out, a.out_type, a.n));
  }
  return absl::OkStatus();
}

void HostSum(const HostSumArguments& arguments, ThreadPool* pool) {
  ParallelFor(pool, arguments.n, kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HostSumPiece)(arguments, begin, end);
  });
}

}  // namespace zero
#endif  // HWY_ONCE
