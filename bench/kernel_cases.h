// The kernels that `zero-bench kernels` measures, with their data and the check of their results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/device.h"

namespace zero::bench {

struct KernelCase {
  std::string kernel;
  std::string types;
  double bytes = 0;  // read and written per element, without lines read only to be overwritten
  std::function<absl::Status()> prepare;  // fresh inputs, for the check
  std::function<absl::Status(const Stream&)> enqueue;
  // Compares what one run after `prepare` left with the scalar formulas. "" or what differs.
  std::function<std::string()> difference;
};

class KernelCases {
 public:
  // `n` elements, a multiple of 64. kResourceExhausted if there is no room.
  static absl::StatusOr<std::unique_ptr<KernelCases>> Create(Device* device, int64_t n);
  virtual ~KernelCases() = default;

  virtual const std::vector<KernelCase>& cases() const = 0;
  // Three arrays of n floats for the triads.
  virtual float* triad(int array) = 0;
};

}  // namespace zero::bench
