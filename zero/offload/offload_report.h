// Where the time of offloaded steps goes, and what they move.
#pragma once

#include <cstdint>

namespace zero {

// Of one rank, since Create; the difference of two is that of the steps between them. Times are
// seconds, as threads of this machine see them. What streams of a GPU wait for is not seen.
struct OffloadReport {
  double optimizer = 0;  // updates on the host
  // What the stream of the updates waited for: a piece's gradient, or its record from the disk; a
  // slot that still goes out, to the device or to the disk.
  double await_gradients = 0;
  double await_piece = 0;
  // What the trainer's streams waited for: weights of a unit that were not there yet; a slot for
  // its gradients that was still read.
  double await_weights = 0;
  double await_gradient_slot = 0;
  // In transfers, summed over the streams of the disk.
  double disk_read = 0;
  double disk_write = 0;

  int64_t bytes_to_device = 0;  // that copies brought, of the library and of others
  int64_t bytes_from_device = 0;
  int64_t bytes_read = 0;  // from the disk
  int64_t bytes_written = 0;

  OffloadReport& operator+=(const OffloadReport& other);
  OffloadReport& operator-=(const OffloadReport& other);
  bool operator==(const OffloadReport&) const = default;
};

}  // namespace zero
