#include "tests/collectives/local_channel.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace zero::test {

class LocalChannels::Channel : public ControlChannel {
 public:
  Channel(LocalChannels* all, int rank) : all_(all), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(all_->channels_.size()); }

  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& key,
                                                    const std::string& value) override {
    std::unique_lock<std::mutex> lock(all_->mutex_);
    Round& round = all_->rounds_[key];
    round.values.resize(static_cast<size_t>(size()));
    round.came.resize(static_cast<size_t>(size()));
    round.values[rank_] = value;
    round.came[rank_] = true;
    ++round.arrived;
    all_->changed_.notify_all();
    const bool in_time =
        all_->changed_.wait_for(lock, absl::ToChronoNanoseconds(all_->deadline_),
                                [&] { return round.arrived == size() || !all_->failure_.ok(); });
    if (round.arrived == size()) return round.values;
    if (!in_time) {
      std::string missing;
      for (int q = 0; q < size(); ++q) {
        if (!round.came[q]) absl::StrAppend(&missing, " ", q);
      }
      return absl::DeadlineExceededError(absl::StrCat("no word from rank", missing));
    }
    return all_->failure_;
  }

  void SetAnswer(const std::string& subject, std::function<std::string()> answer) override {
    std::lock_guard<std::mutex> lock(all_->answers_mutex_);
    all_->answers_[{rank_, subject}] = std::move(answer);
  }
  int64_t Ask(const std::string& subject) override {
    std::vector<std::optional<std::string>> answers(static_cast<size_t>(size()));
    std::lock_guard<std::mutex> lock(all_->answers_mutex_);
    for (int q = 0; q < size(); ++q) {
      if (q == rank_ || all_->mute_.count(q) != 0) continue;
      const std::function<std::string()>& answer = all_->answers_[{q, subject}];
      answers[q] = answer ? answer() : "";
    }
    all_->questions_.push_back(std::move(answers));
    return static_cast<int64_t>(all_->questions_.size()) - 1;
  }
  std::vector<std::optional<std::string>> Answers(int64_t question) const override {
    std::lock_guard<std::mutex> lock(all_->answers_mutex_);
    return all_->questions_[static_cast<size_t>(question)];
  }

  void Abort(const absl::Status& reason) override { all_->Fail(reason); }
  absl::Status Health() const override {
    std::lock_guard<std::mutex> lock(all_->mutex_);
    return all_->failure_;
  }

 private:
  LocalChannels* const all_;
  const int rank_;
};

LocalChannels::LocalChannels(int size, absl::Duration deadline) : deadline_(deadline) {
  for (int r = 0; r < size; ++r) channels_.push_back(std::make_unique<Channel>(this, r));
}
LocalChannels::~LocalChannels() = default;

ControlChannel* LocalChannels::channel(int rank) { return channels_[rank].get(); }

void LocalChannels::Die(int rank) {
  Fail(absl::AbortedError(absl::StrCat("rank ", rank, " has ended")));
}

void LocalChannels::Mute(int rank) {
  std::lock_guard<std::mutex> lock(answers_mutex_);
  mute_.insert(rank);
}

void LocalChannels::Fail(const absl::Status& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.ok()) failure_ = reason;
  }
  changed_.notify_all();
}

}  // namespace zero::test
