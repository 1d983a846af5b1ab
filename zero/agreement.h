// Whether all ranks create the same optimizer.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "zero/config.h"
#include "zero/model.h"

namespace zero {

// A line for each field of the configuration and each parameter that must be the same on every
// rank. A schedule, which is a function, is shown by what it gives for some counts: to 12 digits,
// and to all in stage 0, where every rank updates every weight.
std::vector<std::string> AgreementLines(const Config& config, const Model& model);

// [collective] kInvalidArgument names the first rank whose lines are not those of rank 0, and the
// first line that differs, of a long one the part that does; the same on every rank, and the group
// stays as it is. Sends a hash to each other rank, counted as kStateTransfer; only where hashes
// differ a few more find the line. Takes and gives back less memory than a plan has for staging.
// Blocks.
absl::Status CheckAgreement(const std::vector<std::string>& lines, Device* device,
                            ProcessGroup* group);

}  // namespace zero
