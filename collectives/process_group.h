// Ranks that exchange memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "device/device.h"
#include "device/dtype.h"
#include "device/stream.h"

namespace zero {

// One run of bytes of an all-to-all. Rank r's `receive` gets, from each rank q, the `bytes` at q's
// send + r * send_stride, placed at receive + q * bytes.
struct AllToAllPiece {
  const void* send = nullptr;
  int64_t send_stride = 0;  // bytes
  void* receive = nullptr;  // [size() * bytes]
  int64_t bytes = 0;
};

// One run of bytes of an all-gather. Rank q's `send` arrives at receive + q * receive_stride on
// every rank; `send` may lie in its own place there.
struct AllGatherPiece {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t receive_stride = 0;  // bytes
  int64_t bytes = 0;
};

// One run of elements of a native reduce-scatter. Rank r's `receive` gets the sum over ranks q of
// the `elements` at q's send + r * send_stride.
struct ReduceScatterPiece {
  const void* send = nullptr;
  int64_t send_stride = 0;  // bytes, a multiple of the element's
  void* receive = nullptr;  // [elements]
  int64_t elements = 0;
  DType type = DType::kF32;
};

// A run of columns of a matrix of size() slices: slice r starts at send + r * slice elements.
// Rank r ends up with out[i] = sum over q of rank q's send[r * slice + i], i in [0, columns).
struct ReductionPiece {
  const void* send = nullptr;  // at the first column of slice 0
  int64_t slice = 0;           // elements
  int64_t columns = 0;
  DType type = DType::kF32;
  // [columns]; the own slice of `send`, if out_type is its type, or memory that is not sent.
  void* out = nullptr;
  DType out_type = DType::kF32;
  bool accumulate = false;  // add to out instead of overwriting it
};

struct Traffic {
  bool operator==(const Traffic&) const = default;
  int64_t calls = 0;
  int64_t bytes = 0;  // sent by this rank to others
};
using TrafficTable = std::map<std::string, Traffic>;

// One rank's end of a group. Collectives are enqueued on a stream and return at once; every rank
// enqueues the same ones, in the same order, from one thread. The memory of the pieces must live
// until the stream has run the call, and only this call may write it meanwhile; when the call has
// run on a stream, no rank reads this rank's memory any more.
//
// `name` is what the call is counted and reported under; a literal. Ranks that disagree on the
// operation, the name, the number of pieces or their bytes: kInvalidArgument naming two ranks and
// what each called. A rank that does not arrive within the deadline of the first that waits:
// kDeadlineExceeded naming it and the call. A rank whose stream failed fails the group at once.
// After any failure the group is dead: operations in flight fail with that error, later calls
// return kAborted with it. On a GPU an operation in flight cannot fail its stream: see
// failure_flag.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual absl::Duration deadline() const = 0;

  // Cost: each rank sends (size() - 1) x the sum of `bytes`; the same for AllGather.
  virtual absl::Status AllToAll(const Stream& stream, const char* name,
                                absl::Span<const AllToAllPiece> pieces) = 0;
  virtual absl::Status AllGather(const Stream& stream, const char* name,
                                 absl::Span<const AllGatherPiece> pieces) = 0;
  // Work enqueued later on `stream` starts after every rank's work before its Barrier has run.
  virtual absl::Status Barrier(const Stream& stream, const char* name) = 0;

  // A sum by the back end itself: it may send fewer bytes between machines than the ordered
  // reduction, rounds on the way in `type`, and promises no order. kUnimplemented where
  // has_native_reduction is false. Cost: as AllToAll of the same bytes.
  virtual bool has_native_reduction() const { return false; }
  virtual absl::Status ReduceScatter(const Stream& stream, const char* name,
                                     absl::Span<const ReduceScatterPiece> pieces);
  // Adds in fp32 in rank order and rounds once (kernels.h, OrderedSum), by reading every rank's
  // `send` where it lies: for back ends whose ranks can. kUnimplemented where
  // has_ordered_reduction of the stream's device is false. Cost: as AllToAll of the same bytes.
  virtual bool has_ordered_reduction(DeviceKind) const { return false; }
  virtual absl::Status ReduceInOrder(const Stream& stream, const char* name,
                                     absl::Span<const ReductionPiece> pieces);
  // Whether all ranks are on one machine.
  virtual bool single_host() const { return true; }

  // Memory that the device can read, not zero from before the moment at which a collective that
  // failed lets its stream go on, with anything in the memory that it was to fill. Null where such
  // a collective fails its stream instead. Lives as long as the group.
  virtual const int32_t* failure_flag() const { return nullptr; }

  // Fails the group on every rank. The first reason stays. When it returns, no rank reads another's
  // memory any more. Any thread, the streams' own included.
  virtual void Abort(const absl::Status& reason) = 0;
  // The first failure, or OK. Never blocks. Any thread.
  virtual absl::Status Health() const = 0;

  // Calls enqueued and bytes sent so far, by name. Any thread.
  virtual TrafficTable traffic() const = 0;
};

}  // namespace zero
