#include "tools/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_format.h"
#include "examples/support/text.h"

namespace zero::tools {
namespace {

constexpr int kWidth = 30;

}  // namespace

ProgressBar::ProgressBar(const std::string& what)
    : ProgressBar(what, std::cerr, isatty(STDERR_FILENO) == 1) {}

ProgressBar::ProgressBar(const std::string& what, std::ostream& out, bool terminal)
    : what_(what), out_(out), terminal_(terminal) {}

ProgressBar::~ProgressBar() {
  if (width_ > 0) out_ << '\r' << std::string(width_, ' ') << '\r' << std::flush;
}

void ProgressBar::Show(int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || total <= 0 || now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const double part = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const auto filled = static_cast<size_t>(part * kWidth);
  std::string line =
      absl::StrFormat("%s [%s%s] %3d%%  %.2f of %.2f GB", what_, std::string(filled, '#'),
                      std::string(kWidth - filled, ' '), static_cast<int>(part * 100),
                      static_cast<double>(done) / 1e9, static_cast<double>(total) / 1e9);
  if (part > 0) line += "  " + support::Duration(seconds * (1 - part) / part) + " left";
  const size_t wiped = std::max(width_, line.size()) - line.size();
  out_ << '\r' << line << std::string(wiped, ' ') << std::flush;
  width_ = line.size();
}

}  // namespace zero::tools
