// The control channel of ranks that are threads of one test.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "collectives/control_channel.h"

namespace zero::test {

class LocalChannels {
 public:
  explicit LocalChannels(int size, absl::Duration deadline = absl::Seconds(60));
  ~LocalChannels();
  ControlChannel* channel(int rank);

  // As if the process of `rank` had ended.
  void Die(int rank);
  // As if it were stopped: `rank` does not answer any more.
  void Mute(int rank);

 private:
  class Channel;
  struct Round {
    std::vector<std::string> values;
    std::vector<bool> came;
    int arrived = 0;
  };
  void Fail(const absl::Status& reason);

  const absl::Duration deadline_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  std::map<std::string, Round> rounds_;  // by key
  std::mutex answers_mutex_;
  std::map<std::pair<int, std::string>, std::function<std::string()>> answers_;
  std::vector<std::vector<std::optional<std::string>>> questions_;
  std::set<int> mute_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

}  // namespace zero::test
