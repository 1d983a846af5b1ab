// One collective of ranks that are threads of one process: what each rank brought, and the copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "collectives/process_group.h"
#include "device/thread_pool.h"

namespace zero {

enum class CollectiveKind : uint8_t { kAllToAll, kAllGather, kReduction, kBarrier };

// One rank's side of a collective.
struct Arrival {
  bool arrived = false;
  CollectiveKind kind = CollectiveKind::kBarrier;
  std::string name;
  std::vector<AllToAllPiece> all_to_all;
  std::vector<AllGatherPiece> all_gather;
  std::vector<ReductionPiece> reductions;

  std::vector<int64_t> Bytes() const;  // of each piece
  // "all-gather 'weights' of 128+64 bytes"
  std::string Describe() const;
  // The same operation, name, and bytes of each piece.
  bool Matches(const Arrival& other) const;
};

// The k-th collective of every rank. Guarded by the gate of the group.
struct LocalCall {
  explicit LocalCall(int size) : arrivals(static_cast<size_t>(size)) {}

  std::vector<Arrival> arrivals;
  int arrived = 0;  // ranks whose arrivals agree
  int copied = 0;   // ranks that have read what they need of the others
  int left = 0;     // ranks that are done with the call
};

// Reads all ranks' memory into rank `rank`'s, when all have arrived. Sums are shared out over
// `pool`, which may be null.
void CopyToRank(absl::Span<const Arrival> arrivals, int rank, ThreadPool* pool);

}  // namespace zero
