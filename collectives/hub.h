// What rank 0 knows of all ranks once they have joined, and what it answers. Does no input or
// output: frames go in and out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/connection.h"
#include "collectives/frame.h"

namespace zero {

class Hub {
 public:
  // `send(rank, frame)`: to a rank's member, rank 0's included.
  Hub(int size, absl::Duration deadline, std::function<void(int, const Frame&)> send);

  void OnFrame(int rank, const Frame& frame);
  // The connection of `rank` has ended; no failure if it had left.
  void OnClosed(int rank, const std::string& why);
  // Time has passed.
  void OnTick();
  // The first reason stays, and every rank is told.
  void Fail(const absl::Status& reason);

  bool left(int rank) const { return left_[static_cast<size_t>(rank)]; }

 private:
  struct Exchange {
    SteadyTime since = SteadyNow();
    std::vector<bool> have;
    std::vector<std::string> names;
    std::vector<std::vector<std::string>> values;  // for all ranks, or for each one its own
    int count = 0;
  };
  struct Agreement {
    int first = 0;
    std::string text;
    std::vector<bool> have;
    int count = 0;
  };

  void OnExchange(int rank, FrameReader& reader);
  void Answer(uint64_t index, const Exchange& exchange);
  void OnAgree(int rank, FrameReader& reader);
  void OnLeave(int rank);
  void OnAsk(int rank, FrameReader& reader);
  void OnAnswer(int rank, FrameReader& reader);
  // Calls `send(rank)` for each rank. Rank 0 comes last: its callbacks run in the call, and the
  // others must not wait for them.
  template <class F>
  void ForEachRank(const F& send);
  void SendToAll(const Frame& frame);

  const int size_;
  const absl::Duration deadline_;
  const std::function<void(int, const Frame&)> send_;
  absl::Status failure_;
  std::vector<bool> left_;
  std::map<uint64_t, Exchange> exchanges_;
  std::map<uint64_t, Agreement> agreements_;
};

}  // namespace zero
