// What every ProcessGroup promises while all goes well.
#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/collectives/group_test_util.h"

namespace zero::test {
namespace {

const std::vector<int> kRanks = {1, 2, 3, 4, 8};
// Bytes of the pieces of one call: empty, one, odd, large.
const std::vector<std::vector<int64_t>> kPieces = {{0}, {1}, {57}, {70001}, {5, 0, 1024, 33}};

// Runs `collective` between copies to and from the device, and waits.
absl::Status Run(const Rank& rank, std::vector<DeviceBytes>& memory,
                 std::vector<std::vector<uint8_t>>& bytes,
                 const std::function<absl::Status()>& collective) {
  absl::Status enqueued;
  for (size_t i = 0; i < memory.size() && enqueued.ok(); ++i) enqueued = memory[i].Put(bytes[i]);
  if (enqueued.ok()) enqueued = collective();
  std::vector<std::vector<uint8_t>> after(bytes.size());
  for (size_t i = 0; i < memory.size() && enqueued.ok(); ++i) enqueued = memory[i].Get(after[i]);
  const absl::Status ran = rank.stream->Synchronize();
  bytes = std::move(after);
  return enqueued.ok() ? ran : enqueued;
}

// Rank q gets ByteOf(rank * 16 + q, piece, i) of this rank; checks what came, and that nothing else
// has changed.
absl::Status ExchangeOnce(const Rank& rank, const std::vector<int64_t>& sizes, int64_t gap) {
  const int ranks = rank.group->size();
  std::vector<std::vector<uint8_t>> bytes;  // sent, received, sent, received, ...
  std::vector<DeviceBytes> memory;
  std::vector<AllToAllPiece> pieces;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t stride = sizes[p] + gap;
    bytes.emplace_back(static_cast<size_t>(stride * ranks), 0xEE);
    for (int q = 0; q < ranks; ++q) {
      for (int64_t i = 0; i < sizes[p]; ++i) {
        bytes.back()[q * stride + i] = ByteOf(rank.index * 16 + q, static_cast<int64_t>(p), i);
      }
    }
    bytes.emplace_back(static_cast<size_t>(sizes[p] * ranks) + 1, 0xCC);
    for (size_t side : {2 * p, 2 * p + 1}) {
      ZERO_ASSIGN_OR_RETURN(DeviceBytes made,
                            DeviceBytes::Create(rank, static_cast<int64_t>(bytes[side].size())));
      memory.push_back(std::move(made));
    }
    pieces.push_back({memory[2 * p].data(), stride, memory[2 * p + 1].data(), sizes[p]});
  }
  const std::vector<std::vector<uint8_t>> before = bytes;
  ZERO_RETURN_IF_ERROR(Run(rank, memory, bytes,
                           [&] { return rank.group->AllToAll(*rank.stream, "exchange", pieces); }));
  for (size_t p = 0; p < sizes.size(); ++p) {
    if (bytes[2 * p] != before[2 * p]) return absl::InternalError("changed what was sent");
    const std::vector<uint8_t>& received = bytes[2 * p + 1];
    if (received.back() != 0xCC) return absl::InternalError("wrote past the end");
    for (int q = 0; q < ranks; ++q) {
      for (int64_t i = 0; i < sizes[p]; ++i) {
        if (received[q * sizes[p] + i] != ByteOf(q * 16 + rank.index, static_cast<int64_t>(p), i)) {
          return absl::InternalError(absl::StrCat("piece ", p, " of rank ", q, " at ", i));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GatherOnce(const Rank& rank, const std::vector<int64_t>& sizes, int64_t gap,
                        bool in_place) {
  const int ranks = rank.group->size();
  std::vector<std::vector<uint8_t>> bytes;  // sent, received, sent, received, ...
  std::vector<DeviceBytes> memory;
  std::vector<AllGatherPiece> pieces;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t stride = sizes[p] + gap;
    bytes.emplace_back(static_cast<size_t>(sizes[p]) + 1, 0);
    bytes.emplace_back(static_cast<size_t>(stride * ranks) + 1, 0xCC);
    uint8_t* const from =
        in_place ? bytes[2 * p + 1].data() + rank.index * stride : bytes[2 * p].data();
    for (int64_t i = 0; i < sizes[p]; ++i) {
      from[i] = ByteOf(rank.index, static_cast<int64_t>(p), i);
    }
    for (size_t side : {2 * p, 2 * p + 1}) {
      ZERO_ASSIGN_OR_RETURN(DeviceBytes made,
                            DeviceBytes::Create(rank, static_cast<int64_t>(bytes[side].size())));
      memory.push_back(std::move(made));
    }
    uint8_t* const receive = memory[2 * p + 1].data();
    pieces.push_back({in_place ? receive + rank.index * stride : memory[2 * p].data(), receive,
                      stride, sizes[p]});
  }
  ZERO_RETURN_IF_ERROR(Run(rank, memory, bytes,
                           [&] { return rank.group->AllGather(*rank.stream, "gather", pieces); }));
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t stride = sizes[p] + gap;
    const std::vector<uint8_t>& received = bytes[2 * p + 1];
    for (int64_t at = 0; at < static_cast<int64_t>(received.size()); ++at) {
      const int q = stride == 0 ? ranks : static_cast<int>(at / stride);
      const int64_t i = stride == 0 ? 0 : at % stride;
      const uint8_t expected =
          q < ranks && i < sizes[p] ? ByteOf(q, static_cast<int64_t>(p), i) : 0xCC;
      if (received[at] == expected) continue;
      return absl::InternalError(absl::StrCat("piece ", p, " of rank ", q, " at ", i));
    }
  }
  return absl::OkStatus();
}

TEST_CASE("AllToAll: each rank gets from each rank what was meant for it",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (int ranks : kRanks) {
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    for (const std::vector<int64_t>& sizes : kPieces) {
      for (int64_t gap : {0, 3}) {
        CAPTURE(ranks, sizes, gap);
        REQUIRE(FirstError(OnEachRank(*world, [&](const Rank& rank) {
                  return ExchangeOnce(rank, sizes, gap);
                })) == "");
      }
    }
  }
}

TEST_CASE("AllGather: each rank gets every rank's part, in place or not, and nothing else changes",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (int ranks : kRanks) {
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    for (const std::vector<int64_t>& sizes : kPieces) {
      for (bool in_place : {false, true}) {
        for (int64_t gap : {0, 3}) {
          CAPTURE(ranks, sizes, in_place, gap);
          REQUIRE(FirstError(OnEachRank(*world, [&](const Rank& rank) {
                    return GatherOnce(rank, sizes, gap, in_place);
                  })) == "");
        }
      }
    }
  }
}

TEST_CASE("Collectives: a call without pieces is a call", "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, absl::Seconds(60));
  CHECK(FirstError(OnEachRank(*world, [](const Rank& rank) -> absl::Status {
          ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "none", {}));
          ZERO_RETURN_IF_ERROR(rank.group->AllToAll(*rank.stream, "none", {}));
          return rank.stream->Synchronize();
        })) == "");
  CHECK(world->group(1)->traffic()["none"].calls == 2);
  CHECK(world->group(1)->traffic()["none"].bytes == 0);
}

TEST_CASE("Barrier: work after it starts when every rank's work before it has run",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  for (int ranks : kRanks) {
    CAPTURE(ranks);
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    std::atomic<int> arrived{0};
    std::atomic<int> early{0};
    const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
      for (int round = 1; round <= 5; ++round) {
        ZERO_RETURN_IF_ERROR(rank.stream->Enqueue("arrive", [&, round] {
          if ((rank.index + round) % 3 == 0) Sleep(1);
          ++arrived;
          return absl::OkStatus();
        }));
        ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
        ZERO_RETURN_IF_ERROR(rank.stream->Enqueue("check", [&, round] {
          if (arrived < round * ranks) ++early;
          return absl::OkStatus();
        }));
        ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "part"));
      }
      return rank.stream->Synchronize();
    });
    CHECK(FirstError(statuses) == "");
    CHECK(early == 0);
  }
}

TEST_CASE("Collectives: ranks may come to the calls of two streams in different orders",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, absl::Seconds(60));
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
    const auto other = NewStream(*rank.device, "other");
    for (int round = 0; round < 4; ++round) {
      const Stream& slow = (rank.index + round) % 2 == 0 ? *rank.stream : *other;
      ZERO_RETURN_IF_ERROR(slow.Enqueue("slow", [] {
        Sleep(20);
        return absl::OkStatus();
      }));
      ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "first"));
      ZERO_RETURN_IF_ERROR(rank.group->Barrier(*other, "second"));
    }
    ZERO_RETURN_IF_ERROR(other->Synchronize());
    return rank.stream->Synchronize();
  });
  CHECK(FirstError(statuses) == "");
}

TEST_CASE("Collectives: memory may be changed as soon as the call has run on the own stream",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  // A rank that runs ahead overwrites what it sent; a slow one must have read it before.
  const auto world = MakeWorld(kind, 3, absl::Seconds(60));
  const auto statuses = OnEachRank(
      *world,
      [](const Rank& rank) -> absl::Status {
        constexpr int64_t kBytes = 4096;
        std::vector<uint8_t> send(kBytes);
        std::vector<uint8_t> receive(3 * kBytes);
        int wrong = 0;
        for (int round = 0; round < 20; ++round) {
          ZERO_RETURN_IF_ERROR(rank.stream->Enqueue("write", [&, round] {
            for (uint8_t& byte : send) byte = static_cast<uint8_t>(round * 3 + rank.index);
            return absl::OkStatus();
          }));
          const AllGatherPiece piece{send.data(), receive.data(), kBytes, kBytes};
          ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "ahead", {&piece, 1}));
          ZERO_RETURN_IF_ERROR(rank.stream->Enqueue("check", [&, round] {
            for (int64_t i = 0; i < 3 * kBytes; ++i) {
              if (receive[i] != static_cast<uint8_t>(round * 3 + i / kBytes)) ++wrong;
            }
            return absl::OkStatus();
          }));
        }
        ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
        return wrong == 0 ? absl::OkStatus() : absl::InternalError("read after it was changed");
      },
      [](const std::string& stream, const char*) {
        if (stream == "rank-2") Sleep(1);
        return absl::OkStatus();
      });
  CHECK(FirstError(statuses) == "");
}

TEST_CASE("Traffic: calls and bytes sent to others are counted by name and rank",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (int ranks : {1, 3}) {
    CAPTURE(ranks);
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    CHECK(FirstError(OnEachRank(*world, [](const Rank& rank) -> absl::Status {
            ZERO_RETURN_IF_ERROR(ExchangeOnce(rank, {10, 20}, 5));
            ZERO_RETURN_IF_ERROR(ExchangeOnce(rank, {7}, 0));
            ZERO_RETURN_IF_ERROR(GatherOnce(rank, {100}, 0, true));
            ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
            return rank.stream->Synchronize();
          })) == "");
    for (int r = 0; r < ranks; ++r) {
      TrafficTable traffic = world->group(r)->traffic();
      CHECK(traffic.size() == 3);
      CHECK(traffic["exchange"].calls == 2);
      CHECK(traffic["exchange"].bytes == 37 * (ranks - 1));
      CHECK(traffic["gather"].calls == 1);
      CHECK(traffic["gather"].bytes == 100 * (ranks - 1));
      CHECK(traffic["meet"].calls == 1);
      CHECK(traffic["meet"].bytes == 0);
    }
  }
}

TEST_CASE("Collectives: a negative size is refused, nothing is enqueued, and the group lives on",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 2, absl::Seconds(60));
  CHECK(FirstError(OnEachRank(*world, [](const Rank& rank) -> absl::Status {
          if (rank.index == 0) {
            const AllGatherPiece piece{nullptr, nullptr, 0, -4};
            const absl::Status status = rank.group->AllGather(*rank.stream, "bad", {&piece, 1});
            if (!absl::IsInvalidArgument(status)) return absl::InternalError("not refused");
          }
          return GatherBytes(rank, "good", 10);
        })) == "");
  CHECK(world->group(0)->traffic().count("bad") == 0);
}

TEST_CASE("Collectives: rank and size and deadline are what the group was made with",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 4, absl::Seconds(7));
  CHECK(world->size() == 4);
  for (int r = 0; r < 4; ++r) {
    CHECK(world->group(r)->rank() == r);
    CHECK(world->group(r)->size() == 4);
    CHECK(world->group(r)->deadline() == absl::Seconds(7));
    CHECK_OK(world->group(r)->Health());
  }
}

}  // namespace
}  // namespace zero::test
