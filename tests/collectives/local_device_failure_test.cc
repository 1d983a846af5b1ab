// What fails while a call is enqueued on the streams of all ranks.
#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/host_as_gpu.h"

namespace zero::test {
namespace {

constexpr int kRanks = 3;

// The n-th copy or event of all devices fails.
class FailingGpu : public HostAsGpu {
 public:
  explicit FailingGpu(std::atomic<int>* until_failure) : until_failure_(until_failure) {}

  absl::Status Copy(const Stream& stream, void* to, const void* from, int64_t bytes) override {
    ZERO_RETURN_IF_ERROR(Count());
    return HostAsGpu::Copy(stream, to, from, bytes);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    ZERO_RETURN_IF_ERROR(Count());
    return HostAsGpu::CreateEvent();
  }

 private:
  absl::Status Count() {
    return --*until_failure_ == 0 ? absl::InternalError("injected") : absl::OkStatus();
  }
  std::atomic<int>* const until_failure_;
};

struct Outcome {
  absl::Status first;
  absl::Status second;
};

// Two exchanges on each rank; the memory goes as soon as the rank's own stream has run.
std::vector<Outcome> ExchangeTwice(std::atomic<int>& until_failure) {
  std::vector<std::unique_ptr<FailingGpu>> devices;
  for (int r = 0; r < kRanks; ++r) devices.push_back(std::make_unique<FailingGpu>(&until_failure));
  LocalWorld world(kRanks, absl::Minutes(10));
  std::vector<Outcome> outcomes(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      const auto stream = devices[r]->CreateStream(absl::StrCat("rank-", r));
      if (!stream.ok()) return;
      {
        std::vector<char> send(kRanks * 1024);
        std::vector<char> receive(kRanks * 1024);
        const AllToAllPiece piece{send.data(), 1024, receive.data(), 1024};
        outcomes[r].first = world.group(r)->AllToAll(**stream, "one", {&piece, 1});
        // Not Synchronize, which makes an event.
        std::atomic<bool> ran{false};
        (*stream)
            ->Enqueue("last",
                      [&] {
                        ran = true;
                        return absl::OkStatus();
                      })
            .IgnoreError();
        while (!ran) std::this_thread::yield();
      }
      outcomes[r].second = world.group(r)->Barrier(**stream, "two");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST_CASE("Local on GPUs: whatever fails while a call is enqueued fails it on every rank",
          "[collectives][thread]") {
  int failures = 0;
  for (int n = 1; n < 100; ++n) {
    CAPTURE(n);
    std::atomic<int> until_failure{n};
    const std::vector<Outcome> outcomes = ExchangeTwice(until_failure);
    if (until_failure > 0) {
      for (const Outcome& outcome : outcomes) {
        CHECK_OK(outcome.first);
        CHECK_OK(outcome.second);
      }
      break;
    }
    ++failures;
    const bool in_first = n <= kRanks + kRanks * kRanks;  // an event a rank, and a copy a pair
    for (const Outcome& outcome : outcomes) {
      INFO(outcome.first.ToString());
      INFO(outcome.second.ToString());
      CHECK((in_first ? absl::IsInternal(outcome.first) : outcome.first.ok()));
      CHECK((in_first ? absl::IsAborted(outcome.second) : absl::IsInternal(outcome.second)));
      CHECK(std::string(outcome.second.message()).find("injected") != std::string::npos);
    }
  }
  CHECK(failures == 2 * kRanks + kRanks * kRanks);
}

TEST_CASE("Local on GPUs: a stream that failed before a call fails it on every rank",
          "[collectives][thread]") {
  std::vector<std::unique_ptr<HostAsGpu>> devices;
  for (int r = 0; r < kRanks; ++r) devices.push_back(std::make_unique<HostAsGpu>());
  LocalWorld world(kRanks, absl::Minutes(10));
  std::vector<absl::Status> statuses(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      const auto stream = devices[r]->CreateStream("s");
      if (!stream.ok()) return;
      if (r == 1) {
        (*stream)->Enqueue("fail", [] { return absl::DataLossError("bad sample"); }).IgnoreError();
        (*stream)->Synchronize().IgnoreError();
      }
      statuses[r] = world.group(r)->Barrier(**stream, "meet");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsDataLoss(status));
    CHECK(std::string(status.message()) == "rank 1 did not finish 'meet': bad sample");
  }
}

}  // namespace
}  // namespace zero::test
