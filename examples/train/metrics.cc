#include "examples/train/metrics.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "io/folder.h"

namespace zero::train {
namespace {

std::string MemoryObject(const MemoryTable& table) {
  std::string json = "{";
  const char* separator = "";
  for (int c = 0; c < kMemoryCategories; ++c) {
    absl::StrAppend(&json, separator, "\"", Name(static_cast<MemoryCategory>(c)),
                    "\": {\"current\": ", table[c].current, ", \"peak\": ", table[c].peak, "}");
    separator = ", ";
  }
  return json + "}";
}

std::string WireObject(const WireBytes& wire) {
  std::string json = "{";
  const char* separator = "";
  for (const auto& [name, bytes] : wire) {
    absl::StrAppend(&json, separator, "\"", name, "\": ", bytes);
    separator = ", ";
  }
  return json + "}";
}

std::string OffloadObject(const OffloadReport& report) {
  const std::pair<const char*, double> seconds[] = {
      {"optimizer", report.optimizer},     {"await_gradients", report.await_gradients},
      {"await_piece", report.await_piece}, {"await_weights", report.await_weights},
      {"disk_read", report.disk_read},     {"await_gradient_slot", report.await_gradient_slot},
      {"disk_write", report.disk_write}};
  const std::pair<const char*, int64_t> bytes[] = {{"bytes_to_device", report.bytes_to_device},
                                                   {"bytes_from_device", report.bytes_from_device},
                                                   {"bytes_read", report.bytes_read},
                                                   {"bytes_written", report.bytes_written}};
  std::string json = "{";
  for (const auto& [name, value] : seconds) {
    absl::StrAppend(&json, "\"", name, "\": ", support::ShortestNumber(value), ", ");
  }
  const char* separator = "";
  for (const auto& [name, value] : bytes) {
    absl::StrAppend(&json, separator, "\"", name, "\": ", value);
    separator = ", ";
  }
  return json + "}";
}

// The lines of the steps up to `step` of what was in `path`.
absl::StatusOr<std::string> LinesUpTo(const std::string& path, std::istream& file, int64_t step) {
  std::string kept, line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) break;  // the last line was not finished
    constexpr absl::string_view kStart = "{\"step\": ";
    int64_t of = 0;
    if (!absl::StartsWith(line, kStart) ||
        !absl::SimpleAtoi(line.substr(kStart.size(), line.find(',') - kStart.size()), &of)) {
      return absl::InvalidArgumentError(absl::StrCat("--metrics: '", path,
                                                     "' cannot be appended to: line ", number,
                                                     " is none of a step; give it another place"));
    }
    if (of <= step) absl::StrAppend(&kept, line, "\n");
  }
  if (!file.bad()) return kept;
  return absl::InvalidArgumentError(absl::StrCat("--metrics: '", path, "' cannot be read"));
}

}  // namespace

std::string MetricsLine(const StepReport& report) {
  std::string json = absl::StrCat(
      "{\"step\": ", report.step, ", \"loss\": ", support::ShortestNumber(report.loss),
      ", \"learning_rate\": ", support::ShortestNumber(report.result.learning_rate),
      ", \"grad_norm\": ", support::ShortestNumber(report.result.gradient_norm),
      ", \"loss_scale\": ", support::ShortestNumber(report.result.loss_scale),
      ", \"next_loss_scale\": ", support::ShortestNumber(report.result.next_loss_scale),
      ", \"skipped\": ", report.result.applied ? "false" : "true",
      ", \"skipped_steps\": ", report.result.skipped_steps,
      ", \"consecutive_skips\": ", report.result.consecutive_skips, ", \"tokens\": ", report.tokens,
      ", \"tokens_per_second\": ",
      support::ShortestNumber(static_cast<double>(report.tokens) / report.seconds),
      ", \"step_seconds\": ", support::ShortestNumber(report.seconds),
      ", \"memory\": ", MemoryObject(report.memory), ", \"wire\": ", WireObject(report.wire));
  if (!(report.offload == OffloadReport())) {
    absl::StrAppend(&json, ", \"offload\": ", OffloadObject(report.offload));
  }
  if (report.evaluation_loss.has_value()) {
    absl::StrAppend(&json,
                    ", \"evaluation_loss\": ", support::ShortestNumber(*report.evaluation_loss));
  }
  return json + "}\n";
}

absl::StatusOr<MetricsFile> MetricsFile::Create(const std::string& path, int64_t resumed_step) {
  MetricsFile metrics;
  if (path.empty()) return metrics;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics: '", path, "' is a folder; it must name a file"));
  }
  metrics.existed_ = std::filesystem::exists(path, error);
  metrics.file_.open(path, std::ios::binary | std::ios::app);
  if (!metrics.file_) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics: '", path, "' cannot be written: ", std::strerror(errno)));
  }
  metrics.path_ = metrics.target_ = path;
  ZERO_RETURN_IF_ERROR(metrics.KeepOthersOut());
  if (resumed_step > 0) {
    std::ifstream file(path, std::ios::binary);
    ZERO_ASSIGN_OR_RETURN(metrics.kept_, LinesUpTo(path, file, resumed_step));
  }
  return metrics;
}

absl::Status MetricsFile::KeepOthersOut() {
  std::error_code error;
  regular_ = std::filesystem::is_regular_file(path_, error);
  if (!regular_) return absl::OkStatus();
  // The lock is beside the file that symbolic links lead to, and what is written has its name. A
  // hard link is another name, with a lock of its own.
  const std::filesystem::path file = std::filesystem::canonical(path_, error);
  if (!error) target_ = file.string();
  absl::StatusOr<FolderLock> lock = FolderLock::TakeForFile(target_);
  if (lock.ok()) {
    lock_ = *std::move(lock);
  } else if (absl::IsFailedPrecondition(lock.status())) {
    existed_ = true;  // it is the other run's
    return absl::FailedPreconditionError(
        absl::StrCat("--metrics: ", std::string(lock.status().message())));
  }
  return absl::OkStatus();
}

std::vector<std::string> MetricsFile::traces() const {
  return lock_.held() ? std::vector<std::string>{lock_.path()} : std::vector<std::string>();
}

void MetricsFile::GoBackTo(int64_t step) {
  std::istringstream lines(kept_);
  kept_ = LinesUpTo(path_, lines, step).value_or("");
}

MetricsFile::~MetricsFile() {
  if (!file_.is_open() || !empty_ || existed_) return;
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(target_, ignored);
}

absl::Status MetricsFile::Write(const StepReport& report) {
  if (!file_.is_open()) return absl::OkStatus();
  if (std::exchange(empty_, false)) {
    file_.close();
    if (kept_.empty()) {
      file_.open(target_, std::ios::binary | std::ios::trunc);
    } else {
      // At any time the file holds what is kept.
      ZERO_RETURN_IF_ERROR(WriteWhole(target_, kept_));
      file_.open(target_, std::ios::binary | std::ios::app);
      kept_.clear();
    }
  }
  file_ << MetricsLine(report) << std::flush;
  if (file_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("--metrics: writing '", path_, "' failed at step ", report.step));
}

}  // namespace zero::train
