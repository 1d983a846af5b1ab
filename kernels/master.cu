#include "kernels/cuda_kernels.h"
#include "kernels/elements.cuh"

namespace zero::cuda {
namespace {

struct JoinMasterOp {
  static constexpr int kPacksInFlight = 2;
  template <int kWidth>
  struct Pack {
    float values[kWidth];
  };

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadSplit(weight + i, remainder + i, pack->values);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, const Pack<kWidth>& pack) const {
    StoreElements(pack.values, out + i);
  }

  const uint16_t* weight;
  const uint16_t* remainder;
  float* out;
};

struct SplitMasterOp {
  static constexpr int kPacksInFlight = 2;
  template <int kWidth>
  struct Pack {
    float values[kWidth];
  };

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(in + i, pack->values);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, const Pack<kWidth>& pack) const {
    StoreSplit(pack.values, weight + i, remainder + i);
  }

  const float* in;
  uint16_t* weight;
  uint16_t* remainder;
};

}  // namespace

absl::Status JoinMaster(const Stream& stream, const void* weight, const uint16_t* remainder,
                        float* out, int64_t n, int64_t first) {
  const JoinMasterOp op{static_cast<const uint16_t*>(weight), remainder, out};
  Alignment alignment(first);
  alignment.Include(op.weight);
  alignment.Include(op.remainder);
  alignment.Include(op.out);
  return ForEachElement<kPack<uint16_t>>("join_master", stream, op, alignment, first, n);
}

absl::Status SplitMaster(const Stream& stream, const float* in, void* weight, uint16_t* remainder,
                         int64_t n, int64_t first) {
  const SplitMasterOp op{in, static_cast<uint16_t*>(weight), remainder};
  Alignment alignment(first);
  alignment.Include(op.in);
  alignment.Include(op.weight);
  alignment.Include(op.remainder);
  return ForEachElement<kPack<uint16_t>>("split_master", stream, op, alignment, first, n);
}

}  // namespace zero::cuda
