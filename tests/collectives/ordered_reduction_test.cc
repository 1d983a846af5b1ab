#include "collectives/ordered_reduction.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "kernels/bfloat16_math.h"
#include "tests/collectives/group_test_util.h"
#include "tests/collectives/staged_group.h"

namespace zero::test {
namespace {

// Sums of such values depend on their order.
float ValueOf(int rank, int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(rank + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  const float sign = (x >> 40 & 1) != 0 ? -1.0f : 1.0f;
  return sign * static_cast<float>(x >> 8 & 0xFFFF) *
         std::ldexp(1.0f, static_cast<int>(x % 23) - 20);
}

// Elements of either type, by value.
class Elements {
 public:
  Elements(DType type, int64_t n) : type_(type), bytes_(static_cast<size_t>(n * SizeOf(type))) {}
  void Set(int64_t i, float x) {
    if (type_ == DType::kF32) {
      std::memcpy(&bytes_[i * 4], &x, 4);
    } else {
      const BFloat16 rounded = ToBFloat16(x);
      std::memcpy(&bytes_[i * 2], &rounded, 2);
    }
  }
  float Get(int64_t i) const {
    float x;
    BFloat16 narrow;
    if (type_ == DType::kF32) {
      std::memcpy(&x, &bytes_[i * 4], 4);
      return x;
    }
    std::memcpy(&narrow, &bytes_[i * 2], 2);
    return ToFloat(narrow);
  }
  std::vector<uint8_t>& bytes() { return bytes_; }
  bool operator==(const Elements& other) const { return bytes_ == other.bytes_; }

 private:
  DType type_;
  std::vector<uint8_t> bytes_;
};

// The same in the memory of a rank's device.
class DeviceElements {
 public:
  static absl::StatusOr<DeviceElements> Create(const Rank& rank, DType type, int64_t n) {
    ZERO_ASSIGN_OR_RETURN(DeviceBytes bytes, DeviceBytes::Create(rank, n * SizeOf(type)));
    return DeviceElements(type, std::move(bytes));
  }
  absl::Status Put(Elements& elements) { return bytes_.Put(elements.bytes()); }
  absl::Status Get(Elements& elements) const { return bytes_.Get(elements.bytes()); }
  uint8_t* at(int64_t i) const { return bytes_.data() + i * SizeOf(type_); }

 private:
  DeviceElements(DType type, DeviceBytes bytes) : type_(type), bytes_(std::move(bytes)) {}
  DType type_;
  DeviceBytes bytes_;
};

struct Case {
  DType type = DType::kF32;
  DType out_type = DType::kF32;
  bool accumulate = false;
  int64_t slice = 200;
  std::vector<int64_t> cuts = {200};  // columns of the pieces
  bool one_call = true;               // or one call a piece
  int64_t receive_bytes = 8 * 200 * 4 + 8 * 64;
  int rounds = 1;
};

// What rank `rank` must end up with after `rounds` rounds, by the definition.
Elements Expected(const Case& c, int ranks, int rank) {
  Elements out(c.out_type, c.slice);
  for (int round = 0; round < c.rounds; ++round) {
    for (int64_t i = 0; i < c.slice; ++i) {
      Elements part(c.type, 1);
      float sum = 0;
      for (int q = 0; q < ranks; ++q) {
        part.Set(0, ValueOf(q + 8 * round, rank * c.slice + i));
        sum = q == 0 ? part.Get(0) : sum + part.Get(0);
      }
      out.Set(i, c.accumulate ? out.Get(i) + sum : sum);
    }
  }
  return out;
}

absl::Status Reduce(const Rank& rank, const Case& c) {
  const int ranks = rank.group->size();
  const auto arithmetic = NewStream(*rank.device, absl::StrCat("math-", rank.index));
  // Each round has memory of its own, so that rounds may overlap as they do in training.
  std::vector<DeviceElements> sends;
  std::vector<DeviceElements> outs;
  for (int round = 0; round < c.rounds; ++round) {
    Elements host(c.type, ranks * c.slice);
    for (int64_t i = 0; i < ranks * c.slice; ++i) host.Set(i, ValueOf(rank.index + 8 * round, i));
    ZERO_ASSIGN_OR_RETURN(DeviceElements send,
                          DeviceElements::Create(rank, c.type, ranks * c.slice));
    ZERO_RETURN_IF_ERROR(send.Put(host));
    ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
    sends.push_back(std::move(send));
    if (c.accumulate && round > 0) continue;
    Elements zeros(c.out_type, c.slice);
    ZERO_ASSIGN_OR_RETURN(DeviceElements out, DeviceElements::Create(rank, c.out_type, c.slice));
    ZERO_RETURN_IF_ERROR(out.Put(zeros));
    ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
    outs.push_back(std::move(out));
  }
  ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction,
                        OrderedReduction::Create(rank.device, rank.group, c.receive_bytes));
  absl::Status status;
  for (int round = 0; round < c.rounds && status.ok(); ++round) {
    const DeviceElements& send = sends[round];
    const DeviceElements& out = outs[c.accumulate ? 0 : round];
    std::vector<ReductionPiece> pieces;
    int64_t first = 0;
    for (int64_t columns : c.cuts) {
      pieces.push_back(
          {send.at(first), c.slice, columns, c.type, out.at(first), c.out_type, c.accumulate});
      first += columns;
    }
    for (size_t p = 0; p < pieces.size() && status.ok(); p += c.one_call ? pieces.size() : 1) {
      const size_t count = c.one_call ? pieces.size() : 1;
      status = reduction.Run(*rank.stream, *arithmetic, "reduce", {&pieces[p], count});
    }
  }
  const absl::Status sent = rank.stream->Synchronize();
  const absl::Status summed = arithmetic->Synchronize();
  ZERO_RETURN_IF_ERROR(status);
  ZERO_RETURN_IF_ERROR(sent);
  ZERO_RETURN_IF_ERROR(summed);
  Case last = c;
  for (int round = 0; round < static_cast<int>(outs.size()); ++round) {
    if (!c.accumulate && c.rounds > 1) last.rounds = round + 1;
    Elements sum(c.out_type, c.slice);
    ZERO_RETURN_IF_ERROR(outs[round].Get(sum));
    ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
    if (!(sum == Expected(last, ranks, rank.index))) {
      return absl::InternalError("other bits than the scalar sum");
    }
  }
  return absl::OkStatus();
}

std::string RunCase(GroupWorld& world, const Case& c, const OperationHook& hook = nullptr) {
  return FirstError(OnEachRank(
      world, [&](const Rank& rank) { return Reduce(rank, c); }, hook));
}

TEST_CASE("OrderedReduction: the bits are those of a scalar sum in rank order",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (int ranks : {1, 2, 3, 4, 8}) {
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (DType out_type : {DType::kF32, DType::kBF16}) {
        for (bool accumulate : {false, true}) {
          CAPTURE(ranks, Name(type), Name(out_type), accumulate);
          Case c;
          c.type = type;
          c.out_type = out_type;
          c.accumulate = accumulate;
          c.rounds = accumulate ? 2 : 1;
          CHECK(RunCase(*world, c) == "");
        }
      }
    }
  }
}

TEST_CASE("OrderedReduction: values of the cases above depend on the order of their sum",
          "[collectives]") {
  // Otherwise those cases could not fail.
  int differences = 0;
  for (int64_t i = 0; i < 100; ++i) {
    float forward = 0;
    float backward = 0;
    for (int q = 0; q < 8; ++q) forward += ValueOf(q, i);
    for (int q = 7; q >= 0; --q) backward += ValueOf(q, i);
    differences += forward != backward ? 1 : 0;
  }
  CHECK(differences > 20);
}

TEST_CASE("OrderedReduction: a cut into pieces and calls changes no bit", "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, absl::Seconds(60));
  for (DType type : {DType::kF32, DType::kBF16}) {
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{1, 0, 199}, {64, 64, 64, 8}, {57, 3, 140}}) {
      for (bool one_call : {false, true}) {
        CAPTURE(Name(type), cuts, one_call);
        Case c;
        c.type = type;
        c.cuts = cuts;
        c.one_call = one_call;
        CHECK(RunCase(*world, c) == "");
      }
    }
  }
}

TEST_CASE("OrderedReduction: a sum that is late keeps its receive buffer",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  // Exchanges run ahead of slow sums over the two receive buffers.
  for (const char* slow : {"math-1", "rank-0"}) {
    CAPTURE(slow);
    Case c;
    c.rounds = 8;
    const auto world = MakeWorld(kind, 2, absl::Seconds(60));
    CHECK(RunCase(*world, c, [slow](const std::string& stream, const char*) {
            if (stream == slow) Sleep(2);
            return absl::OkStatus();
          }) == "");
  }
}

TEST_CASE("OrderedReduction: two receive buffers are all that it allocates, and none for one rank",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (int ranks : {1, 3}) {
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    CHECK(FirstError(OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
            ZERO_ASSIGN_OR_RETURN(const OrderedReduction reduction,
                                  OrderedReduction::Create(rank.device, rank.group, 1000));
            const int64_t used =
                rank.device->memory()[static_cast<int>(MemoryCategory::kReceive)].current;
            return used == (ranks == 1 ? 0 : 2000) ? absl::OkStatus()
                                                   : absl::InternalError(absl::StrCat(used));
          })) == "");
  }
}

TEST_CASE("OrderedReduction: pieces that do not fit are refused, and the group lives on",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (const int64_t receive_bytes : {0, 100, 3 * 200 * 4 - 1}) {
    CAPTURE(receive_bytes);
    Case c;
    c.receive_bytes = receive_bytes;
    c.cuts = {10, 190};
    const auto world = MakeWorld(kind, 3, absl::Seconds(60));
    const auto statuses = OnEachRank(*world, [&](const Rank& rank) { return Reduce(rank, c); });
    for (const absl::Status& status : statuses) {
      CHECK(absl::IsInvalidArgument(status));
      CHECK_THAT(std::string(status.message()),
                 ContainsSubstring(absl::StrCat("receive buffer of ", receive_bytes)));
    }
    CHECK_OK(world->group(0)->Health());
    CHECK(world->group(0)->traffic().empty());
  }
}

TEST_CASE("OrderedReduction: pieces of several dtypes and odd sizes may share a call",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, absl::Seconds(60));
  const auto statuses = OnEachRank(*world, [](const Rank& rank) -> absl::Status {
    Case narrow;
    narrow.type = DType::kBF16;
    narrow.slice = 57;
    Case wide;
    wide.slice = 33;
    ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction,
                          OrderedReduction::Create(rank.device, rank.group, 4096));
    std::vector<DeviceElements> sends;
    std::vector<DeviceElements> outs;
    std::vector<ReductionPiece> pieces;
    const Case cases[] = {narrow, wide, narrow, wide};
    for (const Case& c : cases) {
      Elements host(c.type, 3 * c.slice);
      for (int64_t i = 0; i < 3 * c.slice; ++i) host.Set(i, ValueOf(rank.index, i));
      ZERO_ASSIGN_OR_RETURN(DeviceElements send, DeviceElements::Create(rank, c.type, 3 * c.slice));
      ZERO_RETURN_IF_ERROR(send.Put(host));
      ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
      sends.push_back(std::move(send));
      ZERO_ASSIGN_OR_RETURN(DeviceElements out, DeviceElements::Create(rank, c.out_type, c.slice));
      outs.push_back(std::move(out));
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      pieces.push_back({sends[i].at(0), cases[i].slice, cases[i].slice, cases[i].type,
                        outs[i].at(0), cases[i].out_type, false});
    }
    ZERO_RETURN_IF_ERROR(reduction.Run(*rank.stream, *rank.stream, "reduce", pieces));
    ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
    for (size_t i = 0; i < outs.size(); ++i) {
      Elements sum(cases[i].out_type, cases[i].slice);
      ZERO_RETURN_IF_ERROR(outs[i].Get(sum));
      ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
      if (!(sum == Expected(cases[i], 3, rank.index))) return absl::InternalError("bits");
    }
    return absl::OkStatus();
  });
  CHECK(FirstError(statuses) == "");
}

TEST_CASE("OrderedReduction: negative columns are refused", "[collectives]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  for (int ranks : {1, 2}) {
    const auto world = MakeWorld(kind, ranks, absl::Seconds(60));
    for (const absl::Status& status : OnEachRank(*world, [](const Rank& rank) -> absl::Status {
           ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction,
                                 OrderedReduction::Create(rank.device, rank.group, 1000));
           ReductionPiece piece;
           piece.columns = -1;
           return reduction.Run(*rank.stream, *rank.stream, "reduce", {&piece, 1});
         })) {
      CHECK(absl::IsInvalidArgument(status));
    }
  }
}

TEST_CASE("OrderedReduction: the output may be the own slice of what is sent",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  // As stages that keep whole gradients do: nobody may read the slice after it holds the sum.
  const auto world = MakeWorld(kind, 4, absl::Seconds(60));
  const auto statuses = OnEachRank(
      *world,
      [](const Rank& rank) -> absl::Status {
        Case c;
        Elements host(c.type, 4 * c.slice);
        for (int64_t i = 0; i < 4 * c.slice; ++i) host.Set(i, ValueOf(rank.index, i));
        ZERO_ASSIGN_OR_RETURN(DeviceElements block,
                              DeviceElements::Create(rank, c.type, 4 * c.slice));
        ZERO_RETURN_IF_ERROR(block.Put(host));
        ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
        const auto arithmetic = NewStream(*rank.device, "math");
        ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction,
                              OrderedReduction::Create(rank.device, rank.group, c.receive_bytes));
        const ReductionPiece piece{
            block.at(0), c.slice, c.slice, c.type, block.at(rank.index * c.slice),
            c.out_type,  false};
        ZERO_RETURN_IF_ERROR(reduction.Run(*rank.stream, *arithmetic, "reduce", {&piece, 1}));
        ZERO_RETURN_IF_ERROR(arithmetic->Synchronize());
        ZERO_RETURN_IF_ERROR(block.Get(host));
        ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
        const Elements expected = Expected(c, 4, rank.index);
        for (int64_t i = 0; i < c.slice; ++i) {
          if (host.Get(rank.index * c.slice + i) != expected.Get(i)) {
            return absl::InternalError("other bits");
          }
        }
        return absl::OkStatus();
      },
      [](const std::string& stream, const char*) {
        if (stream == "rank-3") Sleep(1);
        return absl::OkStatus();
      });
  CHECK(FirstError(statuses) == "");
}

TEST_CASE("OrderedReduction: a sum that reads every rank gives the bits of one that receives",
          "[collectives][thread]") {
  // And counts the same calls and bytes.
  constexpr int kRanks = 3;
  TrafficTable traffic[2];
  for (const bool staged : {false, true}) {
    CAPTURE(staged);
    const auto world = MakeWorld(LocalKind(), kRanks, absl::Seconds(60));
    CHECK(FirstError(OnEachRank(*world, [staged](const Rank& rank) {
            StagedGroup receiving(rank.group);
            Rank other = rank;
            other.group = staged ? &receiving : rank.group;
            Case c;
            c.type = DType::kBF16;
            c.accumulate = true;
            c.rounds = 2;
            c.cuts = {57, 143};
            return Reduce(other, c);
          })) == "");
    traffic[staged ? 1 : 0] = world->group(1)->traffic();
  }
  CHECK(traffic[0] == traffic[1]);
  CHECK(traffic[0]["reduce"] == Traffic{2, 2 * (kRanks - 1) * 200 * 2});
}

TEST_CASE("OrderedReduction: a sum that reads every rank refuses what it cannot write",
          "[collectives][thread]") {
  const auto world = MakeWorld(LocalKind(), 2, absl::Seconds(60));
  std::vector<absl::Status> unable(2);
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
    std::vector<float> memory(4);
    ReductionPiece piece;
    piece.send = memory.data();
    piece.slice = piece.columns = 2;
    // The own slice, an element off.
    piece.out = memory.data() + 2 * rank.index + (rank.index == 0 ? 1 : -1);
    StagedGroup receiving(rank.group);
    unable[rank.index] = receiving.ReduceInOrder(*rank.stream, "reduce", {&piece, 1});
    return rank.group->ReduceInOrder(*rank.stream, "reduce", {&piece, 1});
  });
  for (int r : {0, 1}) {
    CHECK(absl::IsUnimplemented(unable[r]));
    CHECK(absl::IsInvalidArgument(statuses[r]));
    CHECK_THAT(
        std::string(statuses[r].message()),
        ContainsSubstring("ordered reduction 'reduce' of 8 bytes: OrderedSum: out overlaps"));
  }
  CHECK_OK(world->group(0)->Health());
  CHECK(world->group(0)->traffic().empty());
}

TEST_CASE("Disagreement: sums of other columns are reported on all ranks with both calls",
          "[collectives][thread]") {
  const auto world = MakeWorld(LocalKind(), 2, absl::Minutes(10));
  LineUp line_up(2);
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
    std::vector<float> memory(8);
    ReductionPiece piece;
    piece.send = memory.data();
    piece.slice = 2;
    piece.columns = 1 + rank.index;
    piece.out = memory.data() + 4;
    ZERO_RETURN_IF_ERROR(line_up.Hold(*rank.stream));
    const absl::Status enqueued = rank.group->ReduceInOrder(*rank.stream, "sums", {&piece, 1});
    line_up.Enqueued();
    const absl::Status ran = rank.stream->Synchronize();
    return enqueued.ok() ? ran : enqueued;
  });
  for (const absl::Status& status : statuses) {
    CHECK(absl::IsInvalidArgument(status));
    for (const char* part : {"rank 0 called ordered reduction 'sums' of 4 bytes",
                             "rank 1 called ordered reduction 'sums' of 8 bytes"}) {
      CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
    }
  }
}

}  // namespace
}  // namespace zero::test
