// Ranks as threads whose streams belong to GPUs, and may share one.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/gpu_under_test.h"

namespace zero::test {
namespace {

constexpr double kSoon = 20;  // seconds

struct GpuRank {
  int index = 0;
  ProcessGroup* group = nullptr;
  Device* device = nullptr;
  Stream* stream = nullptr;
};

struct Gpus {
  Gpus(int ranks, absl::Duration deadline, int gpu_count) {
    ResetGpusUnderTest(gpu_count);
    for (int r = 0; r < ranks; ++r) {
      absl::StatusOr<std::unique_ptr<Device>> device = NewGpuUnderTest(r % gpu_count);
      REQUIRE_OK(device.status());
      devices.push_back(*std::move(device));
    }
    world = std::make_unique<LocalWorld>(ranks, deadline);
  }
  ~Gpus() {
    world.reset();
    devices.clear();
    CHECK(ViolationsOnGpus() == std::vector<std::string>());
  }
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<LocalWorld> world;
};

std::vector<absl::Status> OnEachGpu(Gpus& gpus,
                                    const std::function<absl::Status(const GpuRank&)>& body) {
  const int ranks = gpus.world->size();
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      absl::StatusOr<std::unique_ptr<Stream>> stream =
          gpus.devices[r]->CreateStream(absl::StrCat("rank-", r));
      statuses[r] = stream.status();
      if (!stream.ok()) return;
      statuses[r] = body(GpuRank{r, gpus.world->group(r), gpus.devices[r].get(), stream->get()});
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

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

uint8_t ByteOf(int from, int64_t piece, int64_t i) {
  return static_cast<uint8_t>((i * 7 + piece * 31 + from * 101 + 13) % 251);
}

// Device memory and a view of it on the host.
struct Memory {
  static absl::StatusOr<Memory> Make(const GpuRank& rank, int64_t bytes) {
    Memory memory;
    ZERO_ASSIGN_OR_RETURN(memory.device,
                          rank.device->Allocate(bytes, MemoryCategory::kOther, "test"));
    ZERO_ASSIGN_OR_RETURN(memory.host,
                          rank.device->AllocateHost(bytes, MemoryCategory::kOther, "test"));
    return memory;
  }
  absl::Status Upload(const GpuRank& rank) const {
    return rank.device->Copy(*rank.stream, device.data(), host.data(), device.bytes());
  }
  absl::Status Download(const GpuRank& rank) const {
    return rank.device->Copy(*rank.stream, host.data(), device.data(), device.bytes());
  }
  Buffer device;
  Buffer host;
};

// An all-to-all and an all-gather of pieces of `sizes`, apart by `gap`.
absl::Status MoveAll(const GpuRank& rank, const std::vector<int64_t>& sizes, int64_t gap) {
  const int ranks = rank.group->size();
  std::vector<Memory> memories;
  std::vector<AllToAllPiece> exchanged;
  std::vector<AllGatherPiece> gathered;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t stride = sizes[p] + gap;
    ZERO_ASSIGN_OR_RETURN(Memory send, Memory::Make(rank, stride * ranks + 1));
    ZERO_ASSIGN_OR_RETURN(Memory to, Memory::Make(rank, sizes[p] * ranks + 1));
    ZERO_ASSIGN_OR_RETURN(Memory all, Memory::Make(rank, stride * ranks + 1));
    for (int q = 0; q < ranks; ++q) {
      for (int64_t i = 0; i < sizes[p]; ++i) {
        *send.host.bytes_at(q * stride + i) =
            static_cast<char>(ByteOf(rank.index * 16 + q, static_cast<int64_t>(p), i));
      }
    }
    ZERO_RETURN_IF_ERROR(send.Upload(rank));
    exchanged.push_back({send.device.data(), stride, to.device.data(), sizes[p]});
    // Its part for rank 0.
    gathered.push_back({send.device.data(), all.device.data(), stride, sizes[p]});
    memories.push_back(std::move(send));
    memories.push_back(std::move(to));
    memories.push_back(std::move(all));
  }
  ZERO_RETURN_IF_ERROR(rank.group->AllToAll(*rank.stream, "exchange", exchanged));
  ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "gather", gathered));
  for (const Memory& memory : memories) ZERO_RETURN_IF_ERROR(memory.Download(rank));
  ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
  for (size_t p = 0; p < sizes.size(); ++p) {
    const auto piece = static_cast<int64_t>(p);
    for (int q = 0; q < ranks; ++q) {
      for (int64_t i = 0; i < sizes[p]; ++i) {
        const auto to = static_cast<uint8_t>(*memories[3 * p + 1].host.bytes_at(q * sizes[p] + i));
        const auto all =
            static_cast<uint8_t>(*memories[3 * p + 2].host.bytes_at(q * (sizes[p] + gap) + i));
        if (to != ByteOf(q * 16 + rank.index, piece, i) || all != ByteOf(q * 16, piece, i)) {
          return absl::InternalError(absl::StrCat("piece ", p, " of rank ", q, " at ", i));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Gather(const GpuRank& rank, const char* name, int64_t bytes) {
  ZERO_ASSIGN_OR_RETURN(const Memory all, Memory::Make(rank, bytes * rank.group->size()));
  ZERO_RETURN_IF_ERROR(rank.device->Fill(*rank.stream, all.device.data(),
                                         static_cast<uint8_t>(rank.index + 1), all.device.bytes()));
  const AllGatherPiece piece{all.device.bytes_at(rank.index * bytes), all.device.data(), bytes,
                             bytes};
  const absl::Status called = rank.group->AllGather(*rank.stream, name, {&piece, 1});
  const absl::Status copied = all.Download(rank);
  const absl::Status ran = rank.stream->Synchronize();
  ZERO_RETURN_IF_ERROR(called);
  ZERO_RETURN_IF_ERROR(copied);
  ZERO_RETURN_IF_ERROR(ran);
  for (int64_t i = 0; i < all.host.bytes(); ++i) {
    if (*all.host.bytes_at(i) != i / bytes + 1) return absl::InternalError("wrong bytes");
  }
  return absl::OkStatus();
}

TEST_CASE("Local on GPUs: each rank gets from each rank what was meant for it",
          "[collectives][cuda][thread]") {
  for (int ranks : {1, 2, 3, 4}) {
    for (int gpu_count : {1, 2}) {
      CAPTURE(ranks, gpu_count);
      Gpus gpus(ranks, absl::Seconds(60), gpu_count);
      CHECK(FirstError(OnEachGpu(gpus, [](const GpuRank& rank) -> absl::Status {
              for (int64_t gap : {0, 3}) {
                ZERO_RETURN_IF_ERROR(MoveAll(rank, {1}, gap));
                ZERO_RETURN_IF_ERROR(MoveAll(rank, {5, 0, 1024, 33}, gap));
                ZERO_RETURN_IF_ERROR(MoveAll(rank, {20001}, gap));
              }
              ZERO_RETURN_IF_ERROR(Gather(rank, "in place", 777));
              ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "none", {}));
              return rank.stream->Synchronize();
            })) == "");
    }
  }
}

TEST_CASE("Local on GPUs: memory may be changed as soon as the call has run on the own stream",
          "[collectives][cuda][thread]") {
  Gpus gpus(3, absl::Seconds(60), 1);
  CHECK(FirstError(OnEachGpu(gpus, [](const GpuRank& rank) -> absl::Status {
          constexpr int64_t kBytes = 1 << 16;
          constexpr int kRounds = 12;
          ZERO_ASSIGN_OR_RETURN(const Memory send, Memory::Make(rank, kBytes));
          std::vector<Memory> received;
          for (int round = 0; round < kRounds; ++round) {
            ZERO_ASSIGN_OR_RETURN(Memory memory, Memory::Make(rank, 3 * kBytes));
            received.push_back(std::move(memory));
          }
          for (int round = 0; round < kRounds; ++round) {
            ZERO_RETURN_IF_ERROR(rank.device->Fill(*rank.stream, send.device.data(),
                                                   static_cast<uint8_t>(round * 3 + rank.index),
                                                   kBytes));
            const AllGatherPiece piece{send.device.data(), received[round].device.data(), kBytes,
                                       kBytes};
            ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "ahead", {&piece, 1}));
          }
          for (const Memory& memory : received) ZERO_RETURN_IF_ERROR(memory.Download(rank));
          ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
          for (int round = 0; round < kRounds; ++round) {
            for (int64_t i = 0; i < 3 * kBytes; ++i) {
              if (*received[round].host.bytes_at(i) != static_cast<char>(round * 3 + i / kBytes)) {
                return absl::InternalError("read after it was changed");
              }
            }
          }
          return absl::OkStatus();
        })) == "");
}

TEST_CASE("Local on GPUs: work after a barrier starts when every rank's work before it has run",
          "[collectives][cuda][thread]") {
  Gpus gpus(3, absl::Seconds(60), 1);
  std::vector<Memory> written(3);  // read by other ranks
  CHECK(FirstError(OnEachGpu(gpus, [&](const GpuRank& rank) -> absl::Status {
          constexpr int64_t kBytes = 1 << 20;
          ZERO_ASSIGN_OR_RETURN(written[rank.index], Memory::Make(rank, kBytes));
          ZERO_ASSIGN_OR_RETURN(const Memory read, Memory::Make(rank, kBytes));
          for (int i = 0; i < 4 * (rank.index + 1); ++i) {
            ZERO_RETURN_IF_ERROR(rank.device->Fill(*rank.stream, written[rank.index].device.data(),
                                                   static_cast<uint8_t>(i), kBytes));
          }
          ZERO_RETURN_IF_ERROR(rank.device->Fill(*rank.stream, written[rank.index].device.data(),
                                                 static_cast<uint8_t>(100 + rank.index), kBytes));
          ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
          const int next = (rank.index + 1) % 3;
          ZERO_RETURN_IF_ERROR(rank.device->Copy(*rank.stream, read.device.data(),
                                                 written[next].device.data(), kBytes));
          ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "part"));
          ZERO_RETURN_IF_ERROR(read.Download(rank));
          ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
          for (int64_t i = 0; i < kBytes; ++i) {
            if (*read.host.bytes_at(i) != 100 + next) return absl::InternalError("too early");
          }
          return absl::OkStatus();
        })) == "");
}

TEST_CASE("Local on GPUs: a group serves devices that come and go", "[collectives][cuda][thread]") {
  Gpus gpus(2, absl::Seconds(60), 1);
  for (int round = 0; round < 3; ++round) {
    CHECK(FirstError(OnEachGpu(gpus, [](const GpuRank& rank) { return Gather(rank, "g", 100); })) ==
          "");
    for (std::unique_ptr<Device>& device : gpus.devices) {
      device.reset();
      device = NewGpuUnderTest(0).value();
    }
  }
}

TEST_CASE("Local on GPUs: a call allocates no memory", "[collectives][cuda][thread]") {
  Gpus gpus(2, absl::Seconds(60), 1);
  CHECK(FirstError(OnEachGpu(gpus, [](const GpuRank& rank) -> absl::Status {
          const int64_t before = rank.device->allocations();
          ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "first"));
          ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
          return rank.device->allocations() == before ? absl::OkStatus()
                                                      : absl::InternalError("it allocates");
        })) == "");
}

TEST_CASE("Local on GPUs: ranks that disagree all get both calls", "[collectives][cuda][thread]") {
  Gpus gpus(3, absl::Minutes(10), 1);
  const double start = Seconds();
  const std::vector<absl::Status> statuses = OnEachGpu(
      gpus, [](const GpuRank& rank) { return Gather(rank, "weights", rank.index == 1 ? 16 : 8); });
  CHECK(Seconds() - start < kSoon);
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK((absl::IsInvalidArgument(status) || absl::IsAborted(status)));
    CHECK(Contains(status, "rank 1 called all-gather 'weights' of 16 bytes"));
    CHECK(Contains(status, "called all-gather 'weights' of 8 bytes"));
  }
}

TEST_CASE("Local on GPUs: a rank that never calls is named on every rank that waits",
          "[collectives][cuda][thread]") {
  Gpus gpus(3, absl::Milliseconds(300), 1);
  const std::vector<absl::Status> statuses = OnEachGpu(gpus, [](const GpuRank& rank) {
    return rank.index == 2 ? absl::OkStatus() : Gather(rank, "late", 8);
  });
  CHECK_OK(statuses[2]);
  for (int r : {0, 1}) {
    INFO(statuses[r].ToString());
    CHECK(absl::IsDeadlineExceeded(statuses[r]));
    CHECK(Contains(statuses[r], "all-gather 'late'"));
    CHECK(Contains(statuses[r], "for rank 2"));
    CHECK(Contains(statuses[r], "300ms"));
  }
}

TEST_CASE("Local on GPUs: ranks that wait end at once when the group is aborted",
          "[collectives][cuda][thread]") {
  Gpus gpus(3, absl::Minutes(10), 1);
  const double start = Seconds();
  const std::vector<absl::Status> statuses = OnEachGpu(gpus, [](const GpuRank& rank) {
    if (rank.index == 2) {
      Sleep(20);
      rank.group->Abort(absl::UnavailableError("the trainer gave up"));
      return rank.group->Barrier(*rank.stream, "later");
    }
    return rank.group->Barrier(*rank.stream, "waiting");
  });
  CHECK(Seconds() - start < kSoon);
  for (int r : {0, 1}) CHECK(absl::IsUnavailable(statuses[r]));
  CHECK(absl::IsAborted(statuses[2]));
  for (const absl::Status& status : statuses) CHECK(Contains(status, "the trainer gave up"));
}

}  // namespace
}  // namespace zero::test
