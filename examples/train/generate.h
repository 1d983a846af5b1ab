// Text that goes on from a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "device/device.h"
#include "examples/train/load.h"
#include "examples/train/sampler.h"

namespace zero::train {

// Appends `tokens` bytes to `prompt`, each drawn by `sampler`, and gives each to `sink` as it
// comes. The model sees the last max_position_embeddings bytes; each token costs a whole forward
// pass over what it sees. `prompt` must not be empty. `threads` are those of a product on the host.
absl::Status Generate(const SavedModel& saved, const std::string& prompt, int64_t tokens,
                      Sampler& sampler, Device* device, int64_t threads,
                      const std::function<void(char)>& sink);

}  // namespace zero::train
