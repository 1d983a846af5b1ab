#include "bench/memory_limit.h"

#include "device/host_device.h"
#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/memory_limit.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <bool kStreamed>
void TriadPiece(float* a, const float* b, const float* c, int64_t begin, int64_t end) {
  const hn::CappedTag<float, 16> d;
  const auto three = hn::Set(d, 3.0f);
  for (int64_t i = begin; i < end; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto sum = hn::Add(hn::LoadU(d, b + i), hn::Mul(three, hn::LoadU(d, c + i)));
    if constexpr (kStreamed) {
      hn::Stream(sum, d, a + i);
    } else {
      hn::StoreU(sum, d, a + i);
    }
  }
  if constexpr (kStreamed) hwy::FlushStream();
}

void StreamedTriadPiece(float* a, const float* b, const float* c, int64_t begin, int64_t end) {
  TriadPiece<true>(a, b, c, begin, end);
}
void PlainTriadPiece(float* a, const float* b, const float* c, int64_t begin, int64_t end) {
  TriadPiece<false>(a, b, c, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(StreamedTriadPiece);
HWY_EXPORT(PlainTriadPiece);

namespace bench {
namespace {

constexpr int64_t kGrain = 1 << 15;

}  // namespace

void StreamedTriad(ThreadPool* pool, float* a, const float* b, const float* c, int64_t n) {
  ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(StreamedTriadPiece)(a, b, c, begin, end);
  });
}

void PlainTriad(ThreadPool* pool, float* a, const float* b, const float* c, int64_t n) {
  ParallelFor(pool, n, kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(PlainTriadPiece)(a, b, c, begin, end);
  });
}

}  // namespace bench
}  // namespace zero
#endif  // HWY_ONCE
