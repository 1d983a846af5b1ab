// The streams that offloaded state moves on, beside those of the optimizer.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/disk_lane.h"
#include "zero/context.h"
#include "zero/offload/offload_store.h"

namespace zero {

// Null where nothing needs them. `optimizer` and those of the lanes are streams of the host.
struct OffloadStreams {
  std::unique_ptr<Stream> copy_out;        // device to host
  std::unique_ptr<Stream> copy_in;         // host to device
  std::unique_ptr<Stream> optimizer;       // updates on the host
  std::unique_ptr<DiskLane> disk_read;     // records
  std::unique_ptr<DiskLane> disk_write;    // records and weights
  std::unique_ptr<DiskLane> disk_weights;  // weights, read for a gather

  // `store` outlives them. A lane that fails says so in OffloadStore::failed, and aborts the group,
  // before anything that waits for it goes on: where the device is not the host, such a wait does
  // not fail.
  static absl::StatusOr<OffloadStreams> Create(const Context& context, const OffloadStore& store);
  // Of all lanes so far. From any thread.
  DiskTraffic disk_traffic() const;
  // Those that there are.
  std::vector<const Stream*> all() const;
};

}  // namespace zero
