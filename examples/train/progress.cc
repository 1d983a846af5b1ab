#include "examples/train/progress.h"

#include <algorithm>
#include <iostream>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/support/flags.h"
#include "examples/support/text.h"

namespace zero::train {
namespace {

// Steps that the mean loss and the speed are taken over.
constexpr size_t kRecent = 20;

double Mean(const std::deque<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void Push(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > kRecent) values.pop_front();
}

// Why a step changed nothing, and what becomes of the scale.
std::string Skipped(const StepResult& result) {
  std::string text = absl::StrCat("skipped: ", support::WithSeparators(result.non_finite),
                                  " inf or NaN in the gradient, the first in ",
                                  result.first_non_finite, " (owner: rank ", result.owner);
  if (result.producer >= 0) absl::StrAppend(&text, ", writer: rank ", result.producer);
  absl::StrAppend(&text, "); loss scale ", support::ShortestNumber(result.loss_scale));
  if (result.next_loss_scale == result.loss_scale) return text + " stays";
  return absl::StrCat(text, " -> ", support::ShortestNumber(result.next_loss_scale));
}

}  // namespace

Progress::Progress(int64_t steps, int64_t log_every, bool terminal)
    : steps_(steps), log_every_(log_every), terminal_(terminal) {}

void Progress::Finish() {
  if (drawn_) std::cout << std::endl;
  drawn_ = false;
}

std::string Progress::Line(const StepReport& report) const {
  const double step_seconds = Mean(recent_);
  const double left = step_seconds * static_cast<double>(steps_ - report.step);
  std::string line =
      absl::StrFormat("step %*d/%d  loss %.4f  ", static_cast<int>(absl::StrCat(steps_).size()),
                      report.step, steps_, report.loss);
  if (report.result.applied) {
    absl::StrAppendFormat(&line, "norm %.3f  rate %.2e  %6s tokens/s  %s left",
                          report.result.gradient_norm, report.result.learning_rate,
                          support::WithSeparators(static_cast<int64_t>(
                              static_cast<double>(report.tokens) / step_seconds)),
                          support::Duration(left));
  } else {
    absl::StrAppend(&line, Skipped(report.result));
  }
  if (report.evaluation_loss.has_value()) {
    absl::StrAppendFormat(&line, "  evaluation loss %.4f", *report.evaluation_loss);
  }
  return line;
}

void Progress::Show(const StepReport& report) {
  Push(losses_, report.loss);
  Push(recent_, report.seconds);
  ++shown_;
  tokens_ += report.tokens;
  seconds_ += report.seconds;
  offload_ += report.offload;
  skipped_ += report.result.applied ? 0 : 1;
  const bool notable = report.evaluation_loss.has_value() || !report.result.applied;
  const std::string line = Line(report);
  if (!terminal_) {
    const bool due = shown_ == 1 || report.step == steps_ || report.step % log_every_ == 0;
    if (due || notable) std::cout << line << std::endl;
    return;
  }
  // Spaces wipe out what is left of a longer line.
  std::cout << '\r' << line << std::string(width_ > line.size() ? width_ - line.size() : 0, ' ');
  width_ = line.size();
  drawn_ = true;
  if (notable) {
    std::cout << '\n';
    width_ = 0;
    drawn_ = false;
  }
  std::cout.flush();
}

void Progress::Summary() const {
  if (shown_ == 0) return;
  std::cout << absl::StrFormat(
      "%d steps, %s tokens in %s; mean loss of the last %d steps: %.4f nats per token", shown_,
      support::WithSeparators(tokens_), support::Duration(seconds_), losses_.size(), Mean(losses_));
  if (skipped_ > 0) {
    std::cout << "; " << skipped_ << (skipped_ == 1 ? " step" : " steps") << " skipped";
  }
  std::cout << std::endl;
  if (offload_ == OffloadReport()) return;
  const double steps = static_cast<double>(shown_);
  const OffloadReport& o = offload_;
  std::cout << absl::StrFormat(
      "a step took %.2f s: waiting for weights %.2f, for room for gradients %.2f, computing and "
      "others %.2f; meanwhile updates %.2f, which waited for pieces %.2f and gradients %.2f",
      seconds_ / steps, o.await_weights / steps, o.await_gradient_slot / steps,
      (seconds_ - o.await_weights - o.await_gradient_slot) / steps, o.optimizer / steps,
      o.await_piece / steps, o.await_gradients / steps);
  const auto moved = [steps](int64_t bytes) { return static_cast<double>(bytes) / steps / 1e6; };
  std::cout << absl::StrFormat("; %.1f MB to the device, %.1f from it", moved(o.bytes_to_device),
                               moved(o.bytes_from_device));
  if (o.bytes_read + o.bytes_written > 0) {
    std::cout << absl::StrFormat("; disk: %.1f MB read in %.2f, %.1f MB written in %.2f",
                                 moved(o.bytes_read), o.disk_read / steps, moved(o.bytes_written),
                                 o.disk_write / steps);
  }
  std::cout << std::endl;
}

}  // namespace zero::train
