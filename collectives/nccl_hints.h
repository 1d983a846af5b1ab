// What to try when the first exchange over NCCL does not work.
#pragma once

#include <cstdint>
#include <string>

namespace zero {

// The variables worth trying, and, if `shm_folder` has less room than NCCL's segments of
// `local_ranks` ranks need, that and how to enlarge it. Begins with "; ".
std::string NcclHints(int local_ranks, const std::string& shm_folder);

}  // namespace zero
