// Signals that end a run in order, and what an end without order leaves behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::train {

// From now on SIGTERM and SIGUSR1 ask the run to stop; a second SIGTERM ends the process at once.
void StopOnSignals();

// Which of them have come, as bits.
inline constexpr uint64_t kStopTerm = 1;
inline constexpr uint64_t kStopUser = 2;
uint64_t StopSignals();

// Of `bits`: "SIGTERM", "SIGUSR1".
std::string StopSignalName(uint64_t bits);

// When SIGINT, SIGHUP or SIGTERM end the process, these files, and those of these folders that are
// empty, are removed, in their order, and then what was named before. A signal that is ignored
// stays so.
void RemoveOnSignals(const std::vector<std::string>& paths);

}  // namespace zero::train
