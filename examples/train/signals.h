// Signals that end a run in order, and what an end without order leaves behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::train {

// What has come, as bits.
inline constexpr uint64_t kStopTerm = 1;
inline constexpr uint64_t kStopUser = 2;
inline constexpr uint64_t kStopInterrupt = 4;
inline constexpr uint64_t kStopHangUp = 8;
uint64_t StopSignals();

// The one of `bits`, not 0, that a run is said to be stopped by: "SIGTERM", and its number.
std::string StopSignalName(uint64_t bits);
int StopSignalNumber(uint64_t bits);

// For people and scripts, lines about what signals do to zero-train.
std::string SignalHelp();

// From now on SIGINT, SIGTERM and SIGHUP end the process with a line on stderr, if it is the one
// that `speaks`, and SIGUSR1 is only noted. A signal that is ignored stays so.
void ListenToSignals(bool speaks);

// From now on the first of each of SIGINT, SIGTERM and SIGHUP is noted, and has a line that says
// what it does; the second ends the process.
void StopOnSignals();

// When a signal ends the process, these files, and those of these folders that are empty, are
// removed, in their order, and then what was named before.
void RemoveOnSignals(const std::vector<std::string>& paths);

// Ends this process as the signal of that number does by itself.
[[noreturn]] void EndBySignal(int signal);

}  // namespace zero::train
