// Ranks as processes that compute on CPUs, over Gloo's TCP transport.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/process_group.h"
#include "collectives/rendezvous.h"

namespace zero {

// Works for host devices. Moves bytes and computes nothing, so that the bits are those of ranks as
// threads. Errors are those of ProcessGroup; besides:
//   kAborted           a rank's process has ended, or left; the rank and the call are named
//   kDeadlineExceeded  also a rank whose data do not arrive within the deadline of the call
// A failure is that of the rendezvous, so that every rank gets the same one; it reaches the others
// as soon as the network carries it. A rank may have finished a call that fails on others; its next
// one fails. What a rank has enqueued ends when it knows of the failure.
//
// Listens on the address that leads to rank 0, for as long as ranks connect; a connection that does
// not prove to be a rank's ends Create.
class GlooGroup : public ProcessGroup {
 public:
  struct Options {
    Rendezvous* rendezvous = nullptr;  // outlives the group
    absl::Duration deadline = absl::Minutes(10);
  };
  // [collective] An error is one of the rendezvous, on every rank. kUnimplemented if this build has
  // no Gloo.
  static absl::StatusOr<std::unique_ptr<GlooGroup>> Create(const Options& options);
  ~GlooGroup() override;  // after every stream that ran its collectives

  int rank() const override;
  int size() const override;
  absl::Duration deadline() const override;
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override;
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override;
  absl::Status Barrier(const Stream& stream, const char* name) override;
  void Abort(const absl::Status& reason) override;
  absl::Status Health() const override;
  TrafficTable traffic() const override;

 private:
  class Impl;
  explicit GlooGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace zero
