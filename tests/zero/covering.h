// Covering arrays: few cells that hold every combination of any `strength` factors.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

namespace zero::test {

// levels[f]: how many values factor f has. Each cell gives a value to every factor. Greedy and
// deterministic: a cell starts with a tuple that no cell holds yet, and its other factors take the
// values that cover most new tuples.
inline std::vector<std::vector<int>> CoveringArray(const std::vector<int>& levels, int strength) {
  const int factors = static_cast<int>(levels.size());
  std::vector<std::vector<int>> subsets;
  std::vector<bool> mask(factors, false);
  std::fill(mask.begin(), mask.begin() + strength, true);
  do {
    std::vector<int> subset;
    for (int f = 0; f < factors; ++f) {
      if (mask[f]) subset.push_back(f);
    }
    subsets.push_back(subset);
  } while (std::prev_permutation(mask.begin(), mask.end()));

  using Tuple = std::vector<int>;  // subset index, then a value for each of its factors
  std::set<Tuple> missing;
  for (int s = 0; s < static_cast<int>(subsets.size()); ++s) {
    Tuple tuple(strength + 1, 0);
    tuple[0] = s;
    while (true) {
      missing.insert(tuple);
      int i = 0;
      while (i < strength && ++tuple[i + 1] == levels[subsets[s][i]]) tuple[++i] = 0;
      if (i == strength) break;
    }
  }
  const auto covered_by = [&](const std::vector<int>& cell) {
    std::vector<Tuple> tuples;
    for (int s = 0; s < static_cast<int>(subsets.size()); ++s) {
      Tuple tuple = {s};
      for (int f : subsets[s]) tuple.push_back(cell[f]);
      if (std::find(tuple.begin(), tuple.end(), -1) == tuple.end() && missing.count(tuple) > 0) {
        tuples.push_back(tuple);
      }
    }
    return tuples;
  };
  std::vector<std::vector<int>> cells;
  while (!missing.empty()) {
    std::vector<int> cell(factors, -1);
    const Tuple first = *missing.begin();
    for (int i = 0; i < strength; ++i) cell[subsets[first[0]][i]] = first[i + 1];
    for (int f = 0; f < factors; ++f) {
      if (cell[f] >= 0) continue;
      size_t most = 0;
      int best = static_cast<int>(cells.size()) % levels[f];
      for (int value = 0; value < levels[f]; ++value) {
        cell[f] = value;
        const size_t count = covered_by(cell).size();
        if (count > most) {
          most = count;
          best = value;
        }
      }
      cell[f] = best;
    }
    for (const Tuple& tuple : covered_by(cell)) missing.erase(tuple);
    cells.push_back(cell);
  }
  return cells;
}

}  // namespace zero::test
