// What somebody who misspelled a name may have meant.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace zero {

// Insertions, deletions and replacements of characters (Levenshtein) between two texts.
size_t EditDistance(const std::string& a, const std::string& b);

// The name with the fewest of them to `name`; the first of several. Empty if there are none.
std::string NearestName(const std::string& name, const std::vector<std::string>& names);

}  // namespace zero
