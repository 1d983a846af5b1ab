// The processes of a job meet over TCP, exchange small strings, and learn at once when one of them
// fails or ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/control_channel.h"
#include "collectives/launcher.h"

namespace zero {

struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  // of rank 0: a name or a number, IPv4 or IPv6
  int port = 0;
  std::string token;          // only processes that know it join; empty: loopback addresses only
  std::string configuration;  // lines of key=value that must be the same on every rank
  absl::Duration deadline = absl::Minutes(10);
  std::string version;  // compared; empty: that of this library
  // Not OK: why this rank cannot take part. It meets the others only to tell them so, for some
  // seconds at most.
  absl::Status failure;
};

// What `launch` says of where and who.
RendezvousOptions OptionsOf(const Launch& launch);

// One rank's end. Rank 0 listens, on its address alone; the others connect to it, and each
// connection stays open until Close. A thread of its own watches it.
//
// The job fails when a rank's process ends or is silent for the deadline, when a rank calls Abort,
// and when calls of ranks do not fit together. The first failure, as rank 0 saw it, becomes that of
// every rank; all calls return it from then on. kAborted: "rank 2 is gone: ...";
// kDeadlineExceeded: a silent or missing rank; kInvalidArgument: ranks disagree.
class Rendezvous : public ControlChannel {
 public:
  // Waits until all ranks are here, at most the deadline. Ranks may start in any order.
  //   kInvalidArgument   a port that is taken, an unknown host, a rank outside the job or twice in
  //                      it, another world size, version, configuration or token; all name what
  //                      differs and where
  //   kDeadlineExceeded  rank 0 not reached, or the ranks that have not come
  //   another            `failure` of this rank, or the first that another one brought
  // Connections that do not belong to the job are refused and change nothing.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Create(const RendezvousOptions& options);
  // Without Close before it the others see a rank that is gone.
  ~Rendezvous() override;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int rank() const override;
  int size() const override;
  absl::Duration deadline() const;
  // A number: the address of this machine on the way to rank 0.
  const std::string& local_address() const;

  // [collective] The values of all ranks, by rank; at most some MiB together. Calls of all ranks
  // are matched in order, and `name` must be the same on every rank. One thread at a time.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& name,
                                                    const std::string& value) override;
  // [collective] The same with a value for each rank: what every rank has for this one, by rank. So
  // N values of each rank are N * N that rank 0 keeps, but only N that it sends to each.
  // kInvalidArgument, on this rank alone: not one value per rank.
  absl::StatusOr<std::vector<std::string>> ExchangeEach(const std::string& name,
                                                        const std::vector<std::string>& values);

  void SetAnswer(const std::string& subject, std::function<std::string()> answer) override;
  int64_t Ask(const std::string& subject) override;
  std::vector<std::optional<std::string>> Answers(int64_t question) const override;

  // Says what this rank does as the `index`-th thing, and returns at once. When two ranks have said
  // something different, the job fails (kInvalidArgument) with both ranks and texts.
  void Agree(int64_t index, const std::string& text);

  // Fails the job on every rank. Returns when this rank knows the first reason, which may be
  // another one. Any thread.
  void Abort(const absl::Status& reason) override;
  // The first failure, or OK. Never blocks. Any thread.
  absl::Status Health() const override;
  // Calls `callback` with the failure, once, on a thread that must not be kept; at once if there is
  // one already. It may call Health and Abort of this class only.
  int64_t OnFailure(std::function<void(const absl::Status&)> callback);
  // When it returns, the callback does not run and will not.
  void RemoveCallback(int64_t id);
  // Whether the rank has called Close.
  bool HasLeft(int rank) const;

  // Leaves: from now on the end of this process is no failure. Rank 0 waits for all others to
  // leave, at most the deadline. The failure, if there was one.
  absl::Status Close();

 private:
  class Impl;
  explicit Rendezvous(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace zero
