// What somebody who misspelled a name may have meant.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace zero {

// The fewest insertions, deletions and replacements of characters from `a` to `b` (Levenshtein).
size_t EditDistance(const std::string& a, const std::string& b);

// The name at the least distance; the first of several. Empty if there are none.
std::string NearestName(const std::string& name, const std::vector<std::string>& names);

}  // namespace zero
