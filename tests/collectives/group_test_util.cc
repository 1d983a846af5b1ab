#include "tests/collectives/group_test_util.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero::test {

std::vector<absl::Status> OnEachRank(GroupWorld& world,
                                     const std::function<absl::Status(const Rank&)>& body,
                                     const OperationHook& hook) {
  std::vector<absl::Status> statuses(static_cast<size_t>(world.size()));
  std::vector<std::thread> threads;
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<Device> device = world.MakeDevice(r, hook);
      auto stream = device->CreateStream(absl::StrCat("rank-", r));
      if (!stream.ok()) {
        statuses[r] = stream.status();
        return;
      }
      statuses[r] = body(Rank{r, world.group(r), device.get(), stream->get()});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

uint8_t ByteOf(int rank, int64_t piece, int64_t i) {
  return static_cast<uint8_t>((i * 7 + piece * 31 + rank * 101 + 13) % 251);
}

std::unique_ptr<Stream> NewStream(Device& device, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateStream(name);
  return stream.ok() ? *std::move(stream) : nullptr;
}

absl::StatusOr<DeviceBytes> DeviceBytes::Create(const Rank& rank, int64_t bytes) {
  ZERO_ASSIGN_OR_RETURN(Buffer buffer,
                        rank.device->Allocate(bytes, MemoryCategory::kOther, "test"));
  return DeviceBytes(rank, std::move(buffer));
}

absl::Status DeviceBytes::Put(const std::vector<uint8_t>& bytes) {
  return rank_->device->Copy(*rank_->stream, data(), bytes.data(),
                             static_cast<int64_t>(bytes.size()));
}

absl::Status DeviceBytes::Get(std::vector<uint8_t>& bytes) const {
  bytes.resize(static_cast<size_t>(buffer_.bytes()));
  return rank_->device->Copy(*rank_->stream, bytes.data(), data(), buffer_.bytes());
}

absl::Status Outcome(const Rank& rank, const absl::Status& enqueued, const absl::Status& ran) {
  ZERO_RETURN_IF_ERROR(enqueued);
  if (rank.group->failure_flag() != nullptr) ZERO_RETURN_IF_ERROR(rank.group->Health());
  return ran;
}

absl::Status GatherBytes(const Rank& rank, const char* name, int64_t bytes) {
  const std::vector<uint8_t> sent(static_cast<size_t>(bytes), static_cast<uint8_t>(rank.index + 1));
  std::vector<uint8_t> received;
  ZERO_ASSIGN_OR_RETURN(DeviceBytes send, DeviceBytes::Create(rank, bytes));
  ZERO_ASSIGN_OR_RETURN(DeviceBytes receive, DeviceBytes::Create(rank, bytes * rank.group->size()));
  const AllGatherPiece piece{send.data(), receive.data(), bytes, bytes};
  absl::Status enqueued = send.Put(sent);
  if (enqueued.ok()) enqueued = rank.group->AllGather(*rank.stream, name, {&piece, 1});
  if (enqueued.ok()) enqueued = receive.Get(received);
  const absl::Status ran = rank.stream->Synchronize();
  ZERO_RETURN_IF_ERROR(Outcome(rank, enqueued, ran));
  for (size_t i = 0; i < received.size(); ++i) {
    if (received[i] != i / sent.size() + 1) return absl::InternalError("gathered wrong bytes");
  }
  return absl::OkStatus();
}

}  // namespace zero::test
