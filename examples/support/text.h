// Numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace zero::support {

std::string WithSeparators(int64_t n);  // "1,234,567"
std::string Megabytes(int64_t bytes);   // "1.23 MB", of 10^6 bytes
std::string Duration(double seconds);   // "1:02:03", "2:03", "0:03"

}  // namespace zero::support
