// What is particular to ranks as threads.
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "device/status.h"
#include "tests/collectives/group_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Failure: a rank that fails frees its memory only when no rank reads it any more",
          "[collectives][thread]") {
  // Rank 0 is in the middle of a long copy when the group dies. Rank 2 has copied and waits for it;
  // rank 1 has not copied and will not. Both must not go before rank 0 is done: AddressSanitizer
  // and the poison of freed memory are the judges.
  constexpr int64_t kBytes = 16 << 20;
  constexpr int64_t kPiece = 1 << 14;
  const auto world = MakeWorld(LocalKind(), 3, absl::Minutes(10));
  std::atomic<int> operations[3] = {};
  std::latch copying(1);
  std::thread aborter([&] {
    copying.wait();
    Sleep(1);
    world->group(0)->Abort(absl::CancelledError("enough"));
  });
  const auto gather = [](const Rank& rank) -> absl::Status {
    const int64_t all = kBytes * rank.group->size();
    ZERO_ASSIGN_OR_RETURN(Buffer send,
                          rank.device->Allocate(kBytes, MemoryCategory::kOther, "sent"));
    ZERO_ASSIGN_OR_RETURN(Buffer receive,
                          rank.device->Allocate(all, MemoryCategory::kOther, "received"));
    ZERO_RETURN_IF_ERROR(rank.device->Fill(*rank.stream, send.data(), 5, kBytes));
    ZERO_RETURN_IF_ERROR(rank.device->Fill(*rank.stream, receive.data(), 0, all));
    // Small pieces: AddressSanitizer looks at a range when its copy begins.
    std::vector<AllGatherPiece> pieces;
    for (int64_t at = 0; at < kBytes; at += kPiece) {
      pieces.push_back({send.bytes_at(at), receive.bytes_at(at), kBytes, kPiece});
    }
    const absl::Status enqueued = rank.group->AllGather(*rank.stream, "g", pieces);
    const absl::Status ran = rank.stream->Synchronize();
    return enqueued.ok() ? ran : enqueued;
  };
  const auto hook = [&](const std::string& stream, const char* operation) {
    const int rank = stream.back() - '0';
    if (operation[0] != 'g' || ++operations[rank] != 2) return absl::OkStatus();
    // About to copy.
    if (rank == 0) {
      Sleep(50);
      copying.count_down();
    }
    while (rank == 1 && world->group(1)->Health().ok()) std::this_thread::yield();
    return absl::OkStatus();
  };
  const auto statuses = OnEachRank(*world, gather, hook);
  aborter.join();
  for (const absl::Status& status : statuses) CHECK(absl::IsCancelled(status));
}

}  // namespace
}  // namespace zero::test
