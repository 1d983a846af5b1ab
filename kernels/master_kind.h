// The kinds of MasterMemory in kernels.h as types, for the loops of the updates.
#pragma once

#include "kernels/element_type.h"
#include "kernels/kernels.h"

namespace zero {

struct OwnMaster {};  // fp32 parameters
template <class Weight>
struct MasterBeside {};  // an fp32 master beside a weight of 16 bits
struct MasterSplit {};   // a bf16 weight and a remainder
struct NoMaster {};      // a bf16 weight, rounded stochastically

// body(Gradient(), kind) for arguments that CheckUpdate has accepted. Gradients are fp32 or of the
// weight's type: every further pair would be compiled for each optimizer and SIMD target.
template <class Body>
auto WithUpdateTypes(const UpdateArguments& a, const Body& body) {
  const MasterMemory& w = a.weights;
  if (w.weight == nullptr) return body(float(), OwnMaster());
  const bool wide = a.gradient_type == DType::kF32;
  if (w.weight_type == DType::kF16) {
    return wide ? body(float(), MasterBeside<Float16>()) : body(Float16(), MasterBeside<Float16>());
  }
  const auto with = [&](auto kind) { return wide ? body(float(), kind) : body(BFloat16(), kind); };
  if (w.master != nullptr) return with(MasterBeside<BFloat16>());
  return w.remainder != nullptr ? with(MasterSplit()) : with(NoMaster());
}

}  // namespace zero
