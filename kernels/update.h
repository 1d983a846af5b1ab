// What the update kernels AdamW and Sgd share.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/status.h"
#include "kernels/check.h"
#include "kernels/element_type.h"
#include "kernels/host_loop.h"

namespace zero {

// Stands for the elements of a weight that is not there: the master is the weight.
struct NoWeight {};

// WithElementType for the weight; body(NoWeight()) when it is null.
template <class Body>
auto WithWeightType(const void* weight, DType type, const Body& body) {
  if (weight == nullptr) return body(NoWeight());
  return WithElementType(type, body);
}

// Checks the arguments that AdamWArguments and SgdArguments have in common.
template <class Arguments>
absl::Status CheckUpdate(const char* kernel, const Arguments& a) {
  ZERO_RETURN_IF_ERROR(CheckCount(kernel, a.n, kGroupElements));
  if (a.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "gradient", a.gradient));
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "master", a.master));
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "groups", a.groups));
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "scalars", a.scalars));
  return CheckPointer(kernel, "rows", a.rows);
}

}  // namespace zero
