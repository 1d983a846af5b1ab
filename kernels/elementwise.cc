#include "device/host_device.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/device_check.h"
#include "kernels/host_loop.h"
#include "kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

template <class In, class Sum>
void AddLoop(const In* in, Sum* sum, int64_t begin, int64_t end) {
  ForEachVector(begin, end, [=](auto d, int64_t i) HWY_ATTR {
    const auto old = LoadElements(d, sum + i);
    StoreElements(d, hn::Add(old, LoadElements(d, in + i)), sum + i);
  });
}

void AddPiece(const void* in, DType in_type, void* sum, DType sum_type, int64_t begin,
              int64_t end) {
  WithElementType(in_type, [=](auto from) {
    WithElementType(sum_type, [=](auto to) {
      AddLoop(static_cast<const decltype(from)*>(in), static_cast<decltype(to)*>(sum), begin, end);
    });
  });
}

template <class T>
void ScaleLoop(T* x, float factor, int64_t begin, int64_t end) {
  ForEachVector(begin, end, [=](auto d, int64_t i) HWY_ATTR {
    StoreElements(d, hn::Mul(LoadElements(d, x + i), hn::Set(d, factor)), x + i);
  });
}

void ScalePiece(void* x, DType type, float factor, int64_t begin, int64_t end) {
  WithElementType(type,
                  [=](auto t) { ScaleLoop(static_cast<decltype(t)*>(x), factor, begin, end); });
}

template <class T>
void FillLoop(T* x, float value, int64_t begin, int64_t end) {
  ForEachVector(begin, end,
                [=](auto d, int64_t i) HWY_ATTR { StoreElements(d, hn::Set(d, value), x + i); });
}

void FillPiece(void* x, DType type, float value, int64_t begin, int64_t end) {
  WithElementType(type, [=](auto t) { FillLoop(static_cast<decltype(t)*>(x), value, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(AddPiece);
HWY_EXPORT(ScalePiece);
HWY_EXPORT(FillPiece);

absl::Status Add(const Stream& stream, const void* in, DType in_type, void* sum, DType sum_type,
                 int64_t n) {
  ZERO_RETURN_IF_ERROR(CheckCount("Add", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Add", "in", in));
  ZERO_RETURN_IF_ERROR(CheckPointer("Add", "sum", sum));
  ZERO_RETURN_IF_ERROR(CheckOverlap("Add", in, in_type, "sum", sum, sum_type, n));
  if (OnCuda(stream)) return cuda::Add(stream, in, in_type, sum, sum_type, n);
  return stream.Enqueue("add", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(AddPiece)(in, in_type, sum, sum_type, begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status Scale(const Stream& stream, void* x, DType type, float factor, int64_t n) {
  ZERO_RETURN_IF_ERROR(CheckCount("Scale", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Scale", "x", x));
  if (OnCuda(stream)) return cuda::Scale(stream, x, type, factor, n);
  return stream.Enqueue("scale", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(ScalePiece)(x, type, factor, begin, end);
    });
    return absl::OkStatus();
  });
}

absl::Status Fill(const Stream& stream, void* x, DType type, float value, int64_t n) {
  ZERO_RETURN_IF_ERROR(CheckCount("Fill", n));
  if (n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Fill", "x", x));
  if (OnCuda(stream)) return cuda::Fill(stream, x, type, value, n);
  return stream.Enqueue("fill", [=, pool = HostPool(stream)] {
    ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(FillPiece)(x, type, value, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
