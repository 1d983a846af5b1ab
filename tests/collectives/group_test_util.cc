#include "tests/collectives/group_test_util.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero::test {

std::vector<absl::Status> OnEachRank(LocalWorld& world,
                                     const std::function<absl::Status(const Rank&)>& body,
                                     const OperationHook& hook) {
  std::vector<absl::Status> statuses(static_cast<size_t>(world.size()));
  std::vector<std::thread> threads;
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&, r] {
      HostDevice::Options options;
      options.hook = hook;
      HostDevice device(options);
      auto stream = device.CreateStream(absl::StrCat("rank-", r));
      if (!stream.ok()) {
        statuses[r] = stream.status();
        return;
      }
      statuses[r] = body(Rank{r, world.group(r), &device, stream->get()});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::string FirstError(const std::vector<absl::Status>& statuses) {
  for (size_t r = 0; r < statuses.size(); ++r) {
    if (!statuses[r].ok()) return absl::StrCat("rank ", r, ": ", statuses[r].ToString());
  }
  return "";
}

uint8_t ByteOf(int rank, int64_t piece, int64_t i) {
  return static_cast<uint8_t>((i * 7 + piece * 31 + rank * 101 + 13) % 251);
}

std::unique_ptr<Stream> NewStream(Device& device, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateStream(name);
  return stream.ok() ? *std::move(stream) : nullptr;
}

absl::Status GatherBytes(const Rank& rank, const char* name, int64_t bytes) {
  std::vector<uint8_t> send(static_cast<size_t>(bytes), static_cast<uint8_t>(rank.index + 1));
  std::vector<uint8_t> receive(send.size() * rank.group->size(), 0);
  const AllGatherPiece piece{send.data(), receive.data(), bytes, bytes};
  const absl::Status enqueued = rank.group->AllGather(*rank.stream, name, {&piece, 1});
  const absl::Status ran = rank.stream->Synchronize();
  ZERO_RETURN_IF_ERROR(enqueued);
  ZERO_RETURN_IF_ERROR(ran);
  for (size_t i = 0; i < receive.size(); ++i) {
    if (receive[i] != i / send.size() + 1) return absl::InternalError("gathered wrong bytes");
  }
  return absl::OkStatus();
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace zero::test
