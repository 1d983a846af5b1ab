#include "bench/collective_rank.h"

#include <cstring>
#include <utility>

#include "device/status.h"
#include "kernels/element_access.h"

namespace zero::bench {
const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllToAll:
      return "alltoall";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
  }
  return "unknown";
}

double BusFactor(Collective collective, int ranks) {
  const double crossing = static_cast<double>(ranks - 1) / ranks;
  return collective == Collective::kAllReduce ? 2 * crossing : crossing;
}

absl::StatusOr<std::unique_ptr<CollectiveRank>> CollectiveRank::Create(Device* device,
                                                                       ProcessGroup* group,
                                                                       DType type,
                                                                       int64_t largest_part) {
  std::unique_ptr<CollectiveRank> rank(new CollectiveRank(device, group, type));
  const int64_t bytes = rank->bytes(largest_part) * group->size();
  for (Buffer* buffer : {&rank->send_, &rank->receive_, &rank->host_}) {
    ZERO_ASSIGN_OR_RETURN(*buffer,
                          device->Allocate(bytes, MemoryCategory::kOther, "benchmark buffer"));
  }
  ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction, OrderedReduction::Create(device, group, bytes));
  rank->reduction_ = std::make_unique<OrderedReduction>(std::move(reduction));
  ZERO_ASSIGN_OR_RETURN(rank->communication_, device->CreateStream("comm"));
  ZERO_ASSIGN_OR_RETURN(rank->arithmetic_, device->CreateStream("math"));
  return rank;
}

absl::Status CollectiveRank::Prepare(int64_t part) {
  const int64_t elements = part * group_->size();
  for (int64_t i = 0; i < elements; ++i)
    StoreElement(host_.data(), type_, i, Value(group_->rank(), i));
  ZERO_RETURN_IF_ERROR(device_->Copy(*communication_, send_.data(), host_.data(), bytes(elements)));
  ZERO_RETURN_IF_ERROR(device_->Fill(*communication_, receive_.data(), 0xFF, bytes(elements)));
  return communication_->Synchronize();
}

absl::Status CollectiveRank::Enqueue(Collective collective, int64_t part, bool in_place) {
  const int rank = group_->rank();
  char* const own = send_.bytes_at(rank * bytes(part));
  void* const out = in_place ? send_.data() : receive_.data();
  const AllGatherPiece gathered{own, out, bytes(part), bytes(part)};
  if (collective == Collective::kAllGather) {
    return group_->AllGather(*communication_, "all_gather", {&gathered, 1});
  }
  if (collective == Collective::kAllToAll) {
    const AllToAllPiece piece{send_.data(), bytes(part), receive_.data(), bytes(part)};
    return group_->AllToAll(*communication_, "alltoall", {&piece, 1});
  }
  ReductionPiece piece;
  piece.send = send_.data();
  piece.slice = part;
  piece.columns = part;
  piece.type = type_;
  piece.out = receive_.bytes_at(rank * bytes(part));
  piece.out_type = type_;
  ZERO_RETURN_IF_ERROR(
      reduction_->Run(*communication_, *arithmetic_, "reduce_scatter", {&piece, 1}));
  if (collective == Collective::kReduceScatter) return absl::OkStatus();
  // In order with the sum, and with the next one, which goes where this one is gathered from.
  const AllGatherPiece sum{piece.out, receive_.data(), bytes(part), bytes(part)};
  return group_->AllGather(*arithmetic_, "all_reduce", {&sum, 1});
}

absl::Status CollectiveRank::Synchronize() {
  ZERO_RETURN_IF_ERROR(communication_->Synchronize());
  return arithmetic_->Synchronize();
}

absl::StatusOr<int64_t> CollectiveRank::Wrong(Collective collective, int64_t part, bool in_place) {
  ZERO_RETURN_IF_ERROR(Synchronize());
  const int size = group_->size();
  const int rank = group_->rank();
  const void* const from = in_place ? send_.data() : receive_.data();
  ZERO_RETURN_IF_ERROR(device_->Copy(*communication_, host_.data(), from, bytes(part * size)));
  ZERO_RETURN_IF_ERROR(communication_->Synchronize());
  int64_t wrong = 0;
  for (int64_t i = 0; i < part * size; ++i) {
    const int from_rank = static_cast<int>(i / part);
    const int64_t within = i % part;
    float wanted = 0;
    switch (collective) {
      case Collective::kAllGather:
        wanted = Value(from_rank, i);
        break;
      case Collective::kAllToAll:
        wanted = Value(from_rank, rank * part + within);
        break;
      case Collective::kReduceScatter:
      case Collective::kAllReduce:
        if (collective == Collective::kReduceScatter && from_rank != rank) continue;
        for (int q = 0; q < size; ++q) wanted += Value(q, i);
        break;
    }
    if (LoadElement(host_.data(), type_, i) != wanted) ++wrong;
  }
  return wrong;
}

}  // namespace zero::bench
