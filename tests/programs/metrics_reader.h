// Lines of metrics, read by somebody else's parser.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zero::programs {

struct MetricsRecord {
  std::vector<std::string> keys;  // sorted
  int64_t step = 0;
  double loss = 0, learning_rate = 0, tokens_per_second = 0, step_seconds = 0;
  double grad_norm = 0;  // NaN for null: not finite
  double loss_scale = 0, next_loss_scale = 0;
  bool skipped = false;
  int64_t skipped_steps = 0, consecutive_skips = 0;
  int64_t tokens = 0;
  std::map<std::string, int64_t> current, peak;  // memory, by category
  std::map<std::string, int64_t> wire;
  std::optional<double> evaluation_loss;
};

// Throws what the parser throws.
std::vector<MetricsRecord> ReadMetrics(const std::string& text);

// What stands in the text behind "key": in each line, up to the next comma.
std::vector<std::string> TextOf(const std::string& key, const std::string& text);

// The text without what depends on time or belongs to evaluations.
std::string WithoutTimes(const std::string& text);

}  // namespace zero::programs
