#include "collectives/hub.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace zero {

Hub::Hub(int size, absl::Duration deadline, std::function<void(int, const Frame&)> send)
    : size_(size), deadline_(deadline), send_(std::move(send)), left_(size, false) {}

template <class F>
void Hub::ForEachRank(const F& send) {
  for (int rank = 1; rank < size_; ++rank) send(rank);
  send(0);
}

void Hub::SendToAll(const Frame& frame) {
  ForEachRank([&](int rank) { send_(rank, frame); });
}

void Hub::Fail(const absl::Status& reason) {
  if (!failure_.ok()) return;
  failure_ = reason;
  exchanges_.clear();
  agreements_.clear();
  SendToAll(FrameWriter(FrameType::kFailed).Failure(failure_).Finish());
}

void Hub::OnFrame(int rank, const Frame& frame) {
  FrameReader reader(frame);
  switch (frame.type) {
    case FrameType::kExchange:
      return OnExchange(rank, reader);
    case FrameType::kAgree:
      return OnAgree(rank, reader);
    case FrameType::kAbort:
      return Fail(reader.Failure());
    case FrameType::kLeave:
      return OnLeave(rank);
    case FrameType::kAsk:
      return OnAsk(rank, reader);
    case FrameType::kAnswer:
      return OnAnswer(rank, reader);
    default:
      return;  // a sign of life
  }
}

void Hub::OnExchange(int rank, FrameReader& reader) {
  if (!failure_.ok()) return;
  const uint64_t index = reader.Number();
  const std::string name = reader.Text();
  std::vector<std::string> values;
  while (reader.ok() && !reader.AtEnd()) values.push_back(reader.Text());
  if (!reader.ok() || (values.size() != 1 && values.size() != static_cast<size_t>(size_))) {
    return Fail(
        absl::InternalError(absl::StrCat("rank ", rank, " exchanges '", name, "' with ",
                                         values.size(), " values; it must be 1 or ", size_)));
  }
  Exchange& exchange = exchanges_[index];
  if (exchange.have.empty()) {
    exchange.have.resize(size_);
    exchange.names.resize(size_);
    exchange.values.resize(size_);
  }
  for (int other = 0; other < size_; ++other) {
    if (left_[other]) {
      return Fail(absl::AbortedError(absl::StrCat("rank ", rank, " exchanges '", name,
                                                  "', but rank ", other, " has left the job")));
    }
    if (!exchange.have[other] || exchange.names[other] == name) continue;
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("exchange ", index, ": rank ", other, " exchanges '", exchange.names[other],
                     "', rank ", rank, " exchanges '", name, "'")));
  }
  exchange.have[rank] = true;
  exchange.names[rank] = name;
  exchange.values[rank] = std::move(values);
  if (++exchange.count < size_) return;
  const Exchange whole = std::move(exchange);
  exchanges_.erase(index);
  Answer(index, whole);
}

void Hub::Answer(uint64_t index, const Exchange& exchange) {
  ForEachRank([&](int rank) {
    FrameWriter answer(FrameType::kExchanged);
    answer.Number(index);
    for (const std::vector<std::string>& values : exchange.values) {
      answer.Text(values.size() == 1 ? values[0] : values[static_cast<size_t>(rank)]);
    }
    send_(rank, answer.Finish());
  });
}

void Hub::OnAgree(int rank, FrameReader& reader) {
  if (!failure_.ok()) return;
  const uint64_t index = reader.Number();
  const std::string text = reader.Text();
  Agreement& agreement = agreements_[index];
  if (agreement.have.empty()) {
    agreement.have.resize(size_);
    agreement.first = rank;
    agreement.text = text;
  } else if (agreement.text != text) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("collective ", index, ": rank ",
                                                        agreement.first, " called ", agreement.text,
                                                        ", rank ", rank, " called ", text)));
  }
  if (agreement.have[rank]) return;
  agreement.have[rank] = true;
  if (++agreement.count == size_) agreements_.erase(index);
}

void Hub::OnLeave(int rank) {
  if (left_[rank]) return;
  left_[rank] = true;
  for (const auto& [index, exchange] : exchanges_) {
    for (int other = 0; other < size_; ++other) {
      if (!exchange.have[other]) continue;
      return Fail(
          absl::AbortedError(absl::StrCat("rank ", other, " exchanges '", exchange.names[other],
                                          "', but rank ", rank, " has left the job")));
    }
  }
  SendToAll(FrameWriter(FrameType::kLeft).Number(static_cast<uint64_t>(rank)).Finish());
}

void Hub::OnAsk(int rank, FrameReader& reader) {
  const uint64_t number = reader.Number();
  const std::string subject = reader.Text();
  if (!reader.ok()) return;
  const Frame asked = FrameWriter(FrameType::kAsked)
                          .Number(static_cast<uint64_t>(rank))
                          .Number(number)
                          .Text(subject)
                          .Finish();
  ForEachRank([&](int other) {
    if (other != rank) send_(other, asked);
  });
}

void Hub::OnAnswer(int rank, FrameReader& reader) {
  const uint64_t asker = reader.Number();
  const uint64_t number = reader.Number();
  const std::string answer = reader.Text();
  if (!reader.ok() || asker >= static_cast<uint64_t>(size_)) return;
  send_(static_cast<int>(asker), FrameWriter(FrameType::kAnswered)
                                     .Number(static_cast<uint64_t>(rank))
                                     .Number(number)
                                     .Text(answer)
                                     .Finish());
}

void Hub::OnClosed(int rank, const std::string& why) {
  if (left_[rank]) return;
  Fail(absl::AbortedError(
      absl::StrCat("rank ", rank, " is gone: its connection to rank 0 ended (", why, ")")));
}

void Hub::OnTick() {
  const SteadyTime now = SteadyNow();
  for (const auto& [index, exchange] : exchanges_) {
    if (now - exchange.since < Bounded(deadline_)) continue;
    std::vector<int> missing;
    int first = -1;
    for (int rank = 0; rank < size_; ++rank) {
      if (!exchange.have[rank]) missing.push_back(rank);
      if (exchange.have[rank] && first < 0) first = rank;
    }
    return Fail(absl::DeadlineExceededError(
        absl::StrCat("exchange '", exchange.names[first], "': rank ", first, " waited ",
                     absl::FormatDuration(deadline_), " for rank ", absl::StrJoin(missing, ", "))));
  }
}

}  // namespace zero
