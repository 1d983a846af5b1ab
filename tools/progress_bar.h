// How far a long transfer has come, for somebody who watches.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace zero::tools {

// Draws one line again and again: "verifying [#####     ]  52%  1.04 of 2.00 GB  0:03 left". Draws
// nothing unless `terminal`, and at most ten times a second. The line is wiped out in the end.
class ProgressBar {
 public:
  // On stderr, if that is a terminal.
  explicit ProgressBar(const std::string& what);
  ProgressBar(const std::string& what, std::ostream& out, bool terminal);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void Show(int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  std::ostream& out_;
  const bool terminal_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_;
  size_t width_ = 0;  // of the line that is on the terminal
};

}  // namespace zero::tools
