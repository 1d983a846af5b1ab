// A device that groups take for a GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace zero::test {

// Two of the same `id` share a GPU. A program links one implementation: CUDA on its stand-in, or
// the host under another name.
absl::StatusOr<std::unique_ptr<Device>> NewGpuUnderTest(int id);

// Before the first: as many GPUs as new.
void ResetGpusUnderTest(int count);
// After the last: what was done that a GPU does not allow.
std::vector<std::string> ViolationsOnGpus();

}  // namespace zero::test
