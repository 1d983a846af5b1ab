// What a group over NCCL moves, and how it is counted.
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/cuda_stream.h"
#include "device/host_device.h"
#include "device/status.h"
#include "kernels/bfloat16_math.h"
#include "tests/collectives/nccl_test_util.h"
#include "tests/standin/cudart.h"

namespace zero::test {
namespace {

const std::vector<int> kRanks = {1, 2, 3, 4};
const std::vector<std::vector<int64_t>> kPieces = {{0}, {1}, {57}, {20001}, {5, 0, 1024, 33}};

uint8_t ByteOf(int from, int64_t piece, int64_t i) {
  return static_cast<uint8_t>((i * 7 + piece * 31 + from * 101 + 13) % 251);
}

absl::Status ExchangeOnce(const NcclTestRank& rank, const std::vector<int64_t>& sizes,
                          int64_t gap) {
  const int ranks = rank.group->size();
  std::vector<Buffer> send;
  std::vector<Buffer> receive;
  std::vector<AllToAllPiece> pieces;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t stride = sizes[p] + gap;
    std::vector<uint8_t> bytes(static_cast<size_t>(stride * ranks) + 1, 0xEE);
    for (int q = 0; q < ranks; ++q) {
      for (int64_t i = 0; i < sizes[p]; ++i) {
        bytes[q * stride + i] = ByteOf(rank.index * 16 + q, static_cast<int64_t>(p), i);
      }
    }
    ZERO_ASSIGN_OR_RETURN(Buffer from, ToDevice(rank, bytes));
    ZERO_ASSIGN_OR_RETURN(
        Buffer to,
        ToDevice(rank, std::vector<uint8_t>(static_cast<size_t>(sizes[p] * ranks) + 1, 0xCC)));
    send.push_back(std::move(from));
    receive.push_back(std::move(to));
    pieces.push_back({send[p].data(), stride, receive[p].data(), sizes[p]});
  }
  ZERO_RETURN_IF_ERROR(rank.group->AllToAll(*rank.stream, "exchange", pieces));
  for (size_t p = 0; p < sizes.size(); ++p) {
    ZERO_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, FromDevice(rank, receive[p]));
    if (bytes.back() != 0xCC) return absl::InternalError("wrote past the end");
    for (int q = 0; q < ranks; ++q) {
      for (int64_t i = 0; i < sizes[p]; ++i) {
        if (bytes[q * sizes[p] + i] != ByteOf(q * 16 + rank.index, static_cast<int64_t>(p), i)) {
          return absl::InternalError(absl::StrCat("piece ", p, " of rank ", q, " at ", i));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GatherOnce(const NcclTestRank& rank, const std::vector<int64_t>& sizes, int64_t gap,
                        bool in_place) {
  const int ranks = rank.group->size();
  std::vector<Buffer> send;
  std::vector<Buffer> receive;
  std::vector<AllGatherPiece> pieces;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t stride = sizes[p] + gap;
    std::vector<uint8_t> own(static_cast<size_t>(sizes[p]) + 1);
    for (int64_t i = 0; i < sizes[p]; ++i) {
      own[i] = ByteOf(rank.index, static_cast<int64_t>(p), i);
    }
    std::vector<uint8_t> all(static_cast<size_t>(stride * ranks) + 1, 0xCC);
    if (in_place) std::copy(own.begin(), own.end() - 1, all.begin() + rank.index * stride);
    ZERO_ASSIGN_OR_RETURN(Buffer from, ToDevice(rank, own));
    ZERO_ASSIGN_OR_RETURN(Buffer to, ToDevice(rank, all));
    send.push_back(std::move(from));
    receive.push_back(std::move(to));
    const void* const source =
        in_place ? receive[p].bytes_at(rank.index * stride) : send[p].bytes_at(0);
    pieces.push_back({source, receive[p].data(), stride, sizes[p]});
  }
  ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "gather", pieces));
  for (size_t p = 0; p < sizes.size(); ++p) {
    ZERO_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, FromDevice(rank, receive[p]));
    const int64_t stride = sizes[p] + gap;
    for (int64_t at = 0; at < static_cast<int64_t>(bytes.size()); ++at) {
      const int q = stride == 0 ? ranks : static_cast<int>(at / stride);
      const int64_t i = stride == 0 ? 0 : at % stride;
      const uint8_t expected =
          q < ranks && i < sizes[p] ? ByteOf(q, static_cast<int64_t>(p), i) : 0xCC;
      if (bytes[at] == expected) continue;
      return absl::InternalError(absl::StrCat("piece ", p, " of rank ", q, " at ", i));
    }
  }
  return absl::OkStatus();
}

TEST_CASE("NCCL: each rank gets from each rank what was meant for it and nothing else changes",
          "[collectives][nccl][thread]") {
  for (int ranks : kRanks) {
    CAPTURE(ranks);
    const NcclStandin standin;
    NcclWorld world(ranks);
    CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
            for (const std::vector<int64_t>& sizes : kPieces) {
              for (int64_t gap : {0, 3}) {
                ZERO_RETURN_IF_ERROR(ExchangeOnce(rank, sizes, gap));
                ZERO_RETURN_IF_ERROR(GatherOnce(rank, sizes, gap, false));
                ZERO_RETURN_IF_ERROR(GatherOnce(rank, sizes, gap, true));
              }
            }
            return absl::OkStatus();
          })) == "");
  }
}

TEST_CASE("NCCL: rank, size, deadline, hosts and health are what they should be",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Seconds(41));
  CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
          const ProcessGroup& group = *rank.group;
          const bool right = group.rank() == rank.index && group.size() == 2 &&
                             group.deadline() == absl::Seconds(41) && group.single_host() &&
                             group.has_native_reduction() && *group.failure_flag() == 0 &&
                             group.Health().ok() && group.traffic().empty();
          return right ? absl::OkStatus() : absl::InternalError("something is not");
        })) == "");
}

TEST_CASE("NCCL: calls and bytes sent to others are counted by name",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3);
  CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
          ZERO_RETURN_IF_ERROR(ExchangeOnce(rank, {10, 20}, 5));
          ZERO_RETURN_IF_ERROR(GatherOnce(rank, {100}, 0, true));
          ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
          TrafficTable traffic = rank.group->traffic();
          const bool right = traffic.size() == 3 && traffic["exchange"].bytes == 60 &&
                             traffic["gather"].bytes == 200 && traffic["meet"].calls == 1 &&
                             traffic["meet"].bytes == 0;
          return right ? absl::OkStatus() : absl::InternalError("counted wrongly");
        })) == "");
}

TEST_CASE("NCCL: a negative size and a stream of the host are refused and the group lives on",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2);
  CHECK(
      FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
        const AllGatherPiece negative{nullptr, nullptr, 0, -4};
        if (!absl::IsInvalidArgument(rank.group->AllGather(*rank.stream, "bad", {&negative, 1}))) {
          return absl::InternalError("a negative size was not refused");
        }
        HostDevice host;
        ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, host.CreateStream("host"));
        if (!absl::IsInvalidArgument(rank.group->Barrier(*stream, "bad"))) {
          return absl::InternalError("a stream of the host was not refused");
        }
        if (rank.group->traffic().count("bad") != 0) return absl::InternalError("counted");
        return GatherOnNccl(rank, "good", 10);
      })) == "");
}

TEST_CASE("NCCL: a call without bytes is a call that needs nobody", "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2);
  CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
          ZERO_RETURN_IF_ERROR(rank.group->AllToAll(*rank.stream, "none", {}));
          ZERO_RETURN_IF_ERROR(rank.group->ReduceScatter(*rank.stream, "none", {}));
          return rank.group->traffic()["none"].calls == 2 ? absl::OkStatus()
                                                          : absl::InternalError("not counted");
        })) == "");
}

// Small whole numbers: their sums are exact in any order, in every type.
float ValueOf(int rank, int64_t i) { return static_cast<float>((rank * 5 + i * 3) % 17 - 8); }

template <class T>
T Rounded(float x);
template <>
float Rounded(float x) {
  return x;
}
template <>
BFloat16 Rounded(float x) {
  return ToBFloat16(x);
}

template <class T>
absl::Status ReduceOnce(const NcclTestRank& rank, DType type, int64_t slice, int64_t first,
                        int64_t columns) {
  const int ranks = rank.group->size();
  std::vector<uint8_t> bytes(static_cast<size_t>(ranks * slice) * sizeof(T));
  for (int64_t i = 0; i < ranks * slice; ++i) {
    const T x = Rounded<T>(ValueOf(rank.index, i));
    std::memcpy(&bytes[i * sizeof(T)], &x, sizeof(T));
  }
  ZERO_ASSIGN_OR_RETURN(const Buffer send, ToDevice(rank, bytes));
  ZERO_ASSIGN_OR_RETURN(
      const Buffer receive,
      ToDevice(rank, std::vector<uint8_t>(static_cast<size_t>(columns) * sizeof(T))));
  const ReduceScatterPiece piece{send.bytes_at(first * SizeOf(type)), slice * SizeOf(type),
                                 receive.data(), columns, type};
  const ReduceScatterPiece empty{nullptr, 0, nullptr, 0, type};
  ZERO_RETURN_IF_ERROR(rank.group->ReduceScatter(*rank.stream, "reduce", {piece, empty}));
  ZERO_ASSIGN_OR_RETURN(const std::vector<uint8_t> sums, FromDevice(rank, receive));
  for (int64_t i = 0; i < columns; ++i) {
    float sum = 0;
    for (int q = 0; q < ranks; ++q) sum += ValueOf(q, rank.index * slice + first + i);
    const T expected = Rounded<T>(sum);
    if (std::memcmp(&sums[i * sizeof(T)], &expected, sizeof(T)) != 0) {
      return absl::InternalError(absl::StrCat("element ", i));
    }
  }
  return absl::OkStatus();
}

TEST_CASE("NCCL: a reduce-scatter adds whole slices and columns of slices",
          "[collectives][nccl][thread]") {
  for (int ranks : kRanks) {
    CAPTURE(ranks);
    const NcclStandin standin;
    NcclWorld world(ranks);
    CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
            ZERO_RETURN_IF_ERROR(ReduceOnce<float>(rank, DType::kF32, 100, 0, 100));
            ZERO_RETURN_IF_ERROR(ReduceOnce<float>(rank, DType::kF32, 100, 30, 45));
            ZERO_RETURN_IF_ERROR(ReduceOnce<BFloat16>(rank, DType::kBF16, 64, 0, 64));
            ZERO_RETURN_IF_ERROR(ReduceOnce<BFloat16>(rank, DType::kBF16, 64, 1, 2));
            return rank.group->traffic()["reduce"].calls == 4 ? absl::OkStatus()
                                                              : absl::InternalError("count");
          })) == "");
  }
}

TEST_CASE("NCCL: what is enqueued after a call runs after it although NCCL takes it in late",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  standin::SetNcclPolls(20);
  NcclWorld world(2);
  CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
          for (int round = 0; round < 5; ++round) {
            ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "late", 4096));
          }
          return absl::OkStatus();
        })) == "");
}

TEST_CASE("NCCL: work after a barrier starts when every rank's work before it has run",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3);
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
          for (int round = 1; round <= 5; ++round) {
            Operation arrive;
            arrive.run = [&] {
              ++arrived;
              return absl::OkStatus();
            };
            Operation check;
            check.run = [&, round] {
              if (arrived < round * 3) ++early;
              return absl::OkStatus();
            };
            const cudaStream_t stream = NativeStream(*rank.stream);
            standin::EnqueueOperation(stream, std::move(arrive));
            ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
            standin::EnqueueOperation(stream, std::move(check));
            ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "part"));
          }
          return absl::OkStatus();
        })) == "");
  CHECK(arrived == 15);
  CHECK(early == 0);
}

TEST_CASE("NCCL: calls on several streams run in the order in which they were made",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2);
  CHECK(FirstNcclError(OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
          ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> other,
                                rank.device->CreateStream("other"));
          for (int round = 0; round < 4; ++round) {
            ZERO_RETURN_IF_ERROR(rank.group->Barrier(*other, "other"));
            ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "gather", 64));
          }
          return other->Synchronize();
        })) == "");
}

}  // namespace
}  // namespace zero::test
