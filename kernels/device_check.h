// Where a kernel chooses its back end, after its arguments have been checked.
#pragma once

#include "device/device.h"
#include "kernels/cuda_kernels.h"

namespace zero {

inline bool OnCuda(const Stream& stream) { return stream.device().kind() == DeviceKind::kCuda; }

}  // namespace zero
