#include "collectives/roll_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/frame.h"

namespace zero {
namespace {

absl::Duration Patience(absl::Duration limit) {
  return std::clamp(limit / 4, absl::Milliseconds(500), kVerdictTime);
}

// What keeps the call waiting, of a rank that gave this answer; "" if nothing.
std::string Lack(const LateCall& call, const std::optional<std::string>& answer) {
  if (!answer.has_value()) return "does not answer";
  if (answer->empty()) return "is not in the group";
  const std::optional<Standing> standing = DecodeStanding(*answer);
  if (!standing.has_value()) return "does not say where it is";
  if (standing->called <= call.index) {
    return standing->last.empty() ? "has called nothing"
                                  : absl::StrCat("last called ", standing->last);
  }
  if (!call.in_stream) return "";
  if (standing->begun <= call.index) return "has called it, but its stream has not come to it";
  const bool same_place = standing->begun == call.index + 1 && !standing->running.empty();
  if (same_place && standing->running != call.what) {
    return absl::StrCat("is in ", standing->running, " instead");
  }
  return "";
}

}  // namespace

std::string Encode(const Standing& standing) {
  return FrameWriter(FrameType::kAnswer)
      .Number(static_cast<uint64_t>(standing.called))
      .Number(static_cast<uint64_t>(standing.begun))
      .Text(standing.last)
      .Text(standing.running)
      .Finish()
      .fields;
}

std::optional<Standing> DecodeStanding(const std::string& text) {
  const Frame frame{FrameType::kAnswer, text};
  FrameReader reader(frame);
  Standing standing;
  standing.called = static_cast<int64_t>(reader.Number());
  standing.begun = static_cast<int64_t>(reader.Number());
  standing.last = reader.Text();
  standing.running = reader.Text();
  if (!reader.ok() || !reader.AtEnd()) return std::nullopt;
  return standing;
}

absl::Status LateError(const LateCall& call, int rank,
                       absl::Span<const std::optional<std::string>> answers) {
  const int size = static_cast<int>(answers.size());
  std::vector<int> missing;
  std::vector<std::string> lacks;
  bool any_answer = false;
  for (int q = 0; q < size; ++q) {
    if (q == rank) continue;
    any_answer = any_answer || answers[q].has_value();
    const std::string lack = Lack(call, answers[q]);
    if (lack.empty()) continue;
    missing.push_back(q);
    lacks.push_back(absl::StrCat("rank ", q, " ", lack));
  }
  const std::string limit = absl::FormatDuration(call.limit);
  const std::string waited =
      absl::StrCat(call.what, " on rank ", rank, " did not end within ", limit, ": ");
  if (!any_answer && rank != 0 && size > 2) {
    return absl::DeadlineExceededError(
        absl::StrCat(waited,
                     "another rank did not call it, or cannot be reached; rank 0, by way "
                     "of which ranks ask each other, does not answer"));
  }
  if (missing.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        waited, "every rank has come to it by now, late or unable to reach the others"));
  }
  return absl::DeadlineExceededError(absl::StrCat(call.what, ": rank ", rank, " waited ", limit,
                                                  " for rank ", absl::StrJoin(missing, ", "), ": ",
                                                  absl::StrJoin(lacks, ", ")));
}

RollCall::RollCall(ControlChannel* control, const std::string& subject, const LateCall& call)
    : control_(control),
      call_(call),
      until_(SteadyNow() + Bounded(Patience(call.limit))),
      question_(control->Ask(subject)) {}

bool RollCall::Over() const {
  if (SteadyNow() >= until_ || !control_->Health().ok()) return true;
  const std::vector<std::optional<std::string>> answers = control_->Answers(question_);
  for (int q = 0; q < control_->size(); ++q) {
    if (q != control_->rank() && !answers[q].has_value()) return false;
  }
  return true;
}

absl::Status RollCall::Verdict() const {
  return LateError(call_, control_->rank(), control_->Answers(question_));
}

}  // namespace zero
