// What somebody who misspelled a name may have meant.
#pragma once

#include <string>
#include <vector>

namespace zero {

// The name with the fewest insertions, deletions and replacements of characters (Levenshtein); the
// first of several. Empty if there are none.
std::string NearestName(const std::string& name, const std::vector<std::string>& names);

}  // namespace zero
