// What the programs of this folder have in common. A target is one file with LLVMFuzzerTestOneInput
// and FuzzSeeds. It is linked with libFuzzer (scripts/fuzz.sh), or with fuzz_test.cc, which mutates
// the seeds a fixed number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// Takes one input, which may be anything. Ends the process if the parser breaks its contract.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Inputs that mutations begin with; all of them are accepted.
std::vector<std::string> FuzzSeeds();

// What became of the inputs so far.
struct FuzzCounts {
  int64_t accepted = 0;
  int64_t refused = 0;
};
inline FuzzCounts fuzz_counts;

// Ends the process unless `holds`.
inline void FuzzCheck(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}
