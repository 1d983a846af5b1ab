// The updates that `zero-bench optimizer` measures: each optimizer with each kind of master.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/device.h"

namespace zero::bench {

struct OptimizerCase {
  std::string optimizer;
  std::string masters;
  double bytes = 0;  // read and written per parameter, without lines read only to be overwritten
  std::function<absl::Status(const Stream&)> enqueue;
  // Runs the update on fresh states and compares with the scalar formulas. "" or what differs.
  std::function<absl::StatusOr<std::string>(const Stream&)> difference;
};

class OptimizerCases {
 public:
  // `n` parameters, a multiple of 64, in memory that the host can read. kResourceExhausted if there
  // is no room.
  static absl::StatusOr<std::unique_ptr<OptimizerCases>> Create(Device* device, int64_t n);
  virtual ~OptimizerCases() = default;

  virtual const std::vector<OptimizerCase>& cases() const = 0;
  // Three arrays of n floats for the triad, which writes the first; the updates do not read it.
  virtual float* triad(int array) = 0;
};

}  // namespace zero::bench
