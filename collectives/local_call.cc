#include "collectives/local_call.h"

#include <cstring>

#include "collectives/call_description.h"
#include "kernels/host_sum.h"

namespace zero {
namespace {

const char* NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllToAll:
      return "all-to-all";
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kReduction:
      return "ordered reduction";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

// Reads piece `p` of all ranks, in their order.
void ReduceToRank(absl::Span<const Arrival> arrivals, int rank, size_t p, ThreadPool* pool) {
  std::vector<const void*> parts;
  for (const Arrival& arrival : arrivals) {
    const ReductionPiece& piece = arrival.reductions[p];
    parts.push_back(static_cast<const char*>(piece.send) + rank * piece.slice * SizeOf(piece.type));
  }
  const ReductionPiece& mine = arrivals[rank].reductions[p];
  HostSum({parts, mine.type, mine.out, mine.out_type, mine.accumulate, mine.columns}, pool);
}

}  // namespace

std::vector<int64_t> Arrival::Bytes() const {
  std::vector<int64_t> bytes;
  for (const AllToAllPiece& piece : all_to_all) bytes.push_back(piece.bytes);
  for (const AllGatherPiece& piece : all_gather) bytes.push_back(piece.bytes);
  for (const ReductionPiece& piece : reductions) {
    bytes.push_back(piece.columns * SizeOf(piece.type));
  }
  return bytes;
}

std::string Arrival::Describe() const { return DescribeCall(NameOf(kind), name, Bytes()); }

bool Arrival::Matches(const Arrival& other) const {
  return kind == other.kind && name == other.name && Bytes() == other.Bytes();
}

void CopyToRank(absl::Span<const Arrival> arrivals, int rank, ThreadPool* pool) {
  const Arrival& mine = arrivals[rank];
  for (size_t q = 0; q < arrivals.size(); ++q) {
    for (size_t p = 0; p < mine.all_to_all.size(); ++p) {
      const AllToAllPiece& piece = mine.all_to_all[p];
      const AllToAllPiece& theirs = arrivals[q].all_to_all[p];
      if (piece.bytes == 0) continue;
      std::memcpy(static_cast<char*>(piece.receive) + q * piece.bytes,
                  static_cast<const char*>(theirs.send) + rank * theirs.send_stride,
                  static_cast<size_t>(piece.bytes));
    }
    for (size_t p = 0; p < mine.all_gather.size(); ++p) {
      const AllGatherPiece& piece = mine.all_gather[p];
      if (piece.bytes == 0) continue;
      const void* from = arrivals[q].all_gather[p].send;
      void* to = static_cast<char*>(piece.receive) + q * piece.receive_stride;
      if (from != to) std::memcpy(to, from, static_cast<size_t>(piece.bytes));
    }
  }
  for (size_t p = 0; p < mine.reductions.size(); ++p) ReduceToRank(arrivals, rank, p, pool);
}

}  // namespace zero
