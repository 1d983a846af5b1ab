// How messages name a collective.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace zero {

// "all-gather 'weights' of 128+64 bytes"; without pieces, "barrier 'start'".
std::string DescribeCall(const char* operation, const std::string& name,
                         absl::Span<const int64_t> bytes);

}  // namespace zero
