// The toy trainer's forward and backward where the host cannot reach device memory: the same values
// as on the host, from the library's own kernels.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/device.h"
#include "kernels/step_scalars.h"
#include "zero/model.h"

namespace zero::test {

class DeviceToy {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceToy>> Create(Device* device, const Model& model);

  // Counts elements of `weight` that are not finite.
  absl::Status Check(const Stream& stream, const Parameter& parameter, const void* weight);
  // kDataLoss if Check has found any. The stream must have drained.
  absl::Status Checked() const;

  // gradient = round((accumulate ? gradient : 0) + (values + weight_factor * weight)).
  absl::Status Backward(const Stream& stream, const Parameter& parameter, const void* weight,
                        float weight_factor, std::vector<float> values, void* gradient,
                        bool accumulate);

 private:
  struct Found {
    std::string parameter;
    NormPartial partial;
  };

  explicit DeviceToy(Device* device) : device_(device) {}

  Device* const device_;
  Buffer values_, sum_;                  // fp32, as long as the longest parameter
  Buffer scratch_, partial_;             // of Norm
  std::deque<Found> found_;              // the stream writes into it
  std::deque<std::vector<float>> sent_;  // the stream reads from it
};

}  // namespace zero::test
