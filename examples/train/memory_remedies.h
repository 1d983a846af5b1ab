// Flags under which a plan that passes a limit of memory would not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "examples/train/offload_options.h"

namespace zero::train {

// Whether a plan with other places is within one limit, or within both.
struct PlacesFit {
  std::function<bool(const OffloadOptions& places)> host;
  std::function<bool(const OffloadOptions& places)> both;
};

// What would be offloaded, to where, with which ratio or buffers, instead of by `options` in
// `stage`: each entry is tried and within both limits, and none asks for all that another does and
// more, but for all on the disk where the host lacks. Ratios and gradients are changed together
// with places only where neither is enough.
std::vector<std::string> FittingPlaces(const OffloadOptions& options, int64_t stage,
                                       int64_t buffers, const PlacesFit& fit);

// Flags that offload more than `options` do in `stage`, each of which takes less of the device by
// `device_bytes`, a rank's.
std::vector<std::string> OffloadingMore(
    const OffloadOptions& options, int64_t stage,
    const std::function<int64_t(const OffloadOptions& places)>& device_bytes);

}  // namespace zero::train
