// Times of one thing measured several times.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace zero::bench {

class Samples {
 public:
  void Add(double seconds) { seconds_.push_back(seconds); }
  const std::vector<double>& all() const { return seconds_; }
  double min() const { return *std::min_element(seconds_.begin(), seconds_.end()); }
  double max() const { return *std::max_element(seconds_.begin(), seconds_.end()); }
  double median() const {
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

 private:
  std::vector<double> seconds_;
};

// The median of what each sample of `a` is of the one of `b` that was taken with it.
inline double MedianRatio(const Samples& a, const Samples& b) {
  Samples ratios;
  for (size_t i = 0; i < a.all().size(); ++i) ratios.Add(a.all()[i] / b.all()[i]);
  return ratios.median();
}

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace zero::bench
