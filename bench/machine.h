// What a table of numbers must say about the machine.
#pragma once

#include <string>

namespace zero::bench {

// "model name" of /proc/cpuinfo, or "unknown CPU".
std::string CpuName();

}  // namespace zero::bench
