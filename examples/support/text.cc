#include "examples/support/text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace zero::support {

std::string WithSeparators(int64_t n) {
  std::string text = absl::StrCat(n);
  const size_t sign = n < 0 ? 1 : 0;
  for (size_t end = text.size(); end > sign + 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string Megabytes(int64_t bytes) {
  return absl::StrFormat("%.2f MB", static_cast<double>(bytes) / 1e6);
}

std::string Duration(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return "?";
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, rest);
  return absl::StrFormat("%d:%02d", minutes, rest);
}

}  // namespace zero::support
