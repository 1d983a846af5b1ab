// Element-wise and reduction kernels over device memory.
//
// Every function enqueues on `stream` and returns at once; the memory it names must live until the
// stream has run it. `n` counts elements. n == 0 does nothing. Inputs and outputs may be the same
// elements (of one dtype) where element i of the output depends on element i of the input only;
// otherwise they must not overlap. Errors: kInvalidArgument for a dtype or argument that is not
// supported, with nothing enqueued; on a CUDA stream also what CUDA says about the launch, with the
// name of the kernel. Results do not depend on the device, the number of threads or the SIMD
// target: every product and sum is rounded on its own (no fused multiply-add), in the order given
// here. Only the sign and payload of a NaN that arithmetic gives are left open.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "kernels/step_scalars.h"

namespace zero {

// out[i] = round(in[i]); to nearest, ties to even; NaN stays NaN.
absl::Status Cast(const Stream& stream, const void* in, DType in_type, void* out, DType out_type,
                  int64_t n);

// sum[i] = round(float(sum[i]) + float(in[i])).
absl::Status Add(const Stream& stream, const void* in, DType in_type, void* sum, DType sum_type,
                 int64_t n);

// x[i] = round(float(x[i]) * factor).
absl::Status Scale(const Stream& stream, void* x, DType type, float factor, int64_t n);

// x[i] = round(value).
absl::Status Fill(const Stream& stream, void* x, DType type, float value, int64_t n);

// s = 0 + parts[0][i] + parts[1][i] + ... in fp32, in this order, part p starting at element
// p * part_stride;  out[i] = round(s), or round(float(out[i]) + s) if `accumulate`.
// The sum starts from parts[0] itself, so that one part is only converted.
struct OrderedSumArguments {
  const void* parts = nullptr;
  DType part_type = DType::kF32;
  int64_t part_count = 0;   // >= 1
  int64_t part_stride = 0;  // elements
  void* out = nullptr;
  DType out_type = DType::kF32;
  bool accumulate = false;
  int64_t n = 0;
};
absl::Status OrderedSum(const Stream& stream, const OrderedSumArguments& arguments);

// Sum of squares by one fixed tree: chunks of kNormChunk elements; in a chunk element i goes to
// lane i % 32, each lane adds its squares in double in order of i; lanes are added in pairs
// (l += l + 16, then 8, 4, 2, 1); chunks are added in order.
// `scratch` holds NormChunks(n) rows; `out` one. Both in device memory.
inline constexpr int64_t kNormChunk = 2048;
constexpr int64_t NormChunks(int64_t n) { return (n + kNormChunk - 1) / kNormChunk; }
absl::Status Norm(const Stream& stream, const void* in, DType type, int64_t n, NormPartial* scratch,
                  NormPartial* out);

// Where the fp32 master of a parameter is, and where its weight goes. Four kinds:
//   weight null             the parameter is fp32 and its own master
//   master and weight       an fp32 master beside a 16-bit weight
//   remainder and weight    split: a bf16 weight and the 16 bits that rounding to it lost are the
//                           master together, exactly
//   weight only             none: a bf16 weight, updated in place
// A master p becomes the weight round(p): to nearest, ties to even, or away from zero if split or
// `ties_away`. Where there is no master, of the two bf16 around p the further from zero is taken
// with the probability that makes p the mean: (bits of p + 16 random bits) >> 16. The bits of
// element i are a function of (scalars->random_key, random_key, first_element + i) alone.
struct MasterMemory {
  float* master = nullptr;
  uint16_t* remainder = nullptr;
  void* weight = nullptr;
  DType weight_type = DType::kBF16;
  bool ties_away = false;     // master and weight, bf16
  uint32_t random_key = 0;    // of the parameter
  int64_t first_element = 0;  // of the parameter, a multiple of 64
};

// What all updates have. In fp32, with s = *scalars, r = rows[groups[i / 64]] and p the master, or
// the weight where there is none, they begin with
//   g = (float(gradient[i]) / s.divisor) * s.clip_coefficient
// Nothing is written when s.apply == 0.
struct UpdateArguments {
  const void* gradient = nullptr;
  DType gradient_type = DType::kF32;  // fp32 or the weight's
  MasterMemory weights;
  const uint8_t* groups = nullptr;  // one byte for each 64 elements
  int64_t n = 0;                    // a multiple of 64
  const StepScalars* scalars = nullptr;
  const GroupScalars* rows = nullptr;
};

// Adam (Kingma and Ba, arXiv 1412.6980) and AdamW (Loshchilov and Hutter, arXiv 1711.05101), in the
// operation order of PyTorch: r.weight_decay belongs to the first, r.keep to the second.
//   g = g + r.weight_decay * p  unless r.weight_decay == 0
//   p = p * r.keep
//   m = m + s.one_minus_beta1 * (g - m)
//   v = beta2 * v + (one_minus_beta2 * g) * g
//   p = p - (r.step_size * m) / (sqrt(v) / s.sqrt_bias_correction2 + epsilon)
// 1 - beta is rounded from double: 1 - 0.999f is 1.3e-5 off.
struct AdamArguments : UpdateArguments {
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float epsilon = 0;
};
absl::Status Adam(const Stream& stream, const AdamArguments& arguments);

// SGD with momentum (PyTorch's torch.optim.SGD, dampening 0):
//   g = g + r.weight_decay * p
//   m = s.beta1 * m + g
//   p = p - r.learning_rate * (nesterov ? g + s.beta1 * m : m)
// moment1 may be null where there is no momentum: then m = g.
struct SgdArguments : UpdateArguments {
  float* moment1 = nullptr;
  bool nesterov = false;
};
absl::Status Sgd(const Stream& stream, const SgdArguments& arguments);

// Lion (Chen et al., arXiv 2302.06675), sign(0) = 0:
//   p = p * r.keep
//   p = p - r.learning_rate * sign(s.beta1 * m + s.one_minus_beta1 * g)
//   m = beta2 * m + one_minus_beta2 * g
struct LionArguments : UpdateArguments {
  float* moment1 = nullptr;
  float beta2 = 0;
  float one_minus_beta2 = 0;
};
absl::Status Lion(const Stream& stream, const LionArguments& arguments);

}  // namespace zero
