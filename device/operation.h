// The unit of work of the host stream engine, and the gate that a blocked one waits at.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace zero {

// Where operations wait for one another. Whoever changes what a `ready` depends on holds `mutex`
// while changing it and then notifies.
struct Gate {
  virtual ~Gate() = default;
  // What is waited for here, for reports: "an event of stream 'comm-1'". Empty: nothing to add to
  // the name of the operation.
  virtual std::string Describe() const { return ""; }

  std::mutex mutex;
  std::condition_variable changed;
};

// Longer time limits count as none, since clocks would overflow.
inline constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

// Operations of one stream run one after the other, in order. An operation never blocks inside
// `run`: what has to be waited for goes into `ready`, so that any scheduler can drive it. (In a
// stream beside a GPU, which has a thread of its own always, it may.)
struct Operation {
  const char* name = "";  // a literal

  // Polled with gate->mutex held; null: ready at once.
  std::shared_ptr<Gate> gate;
  absl::AnyInvocable<bool()> ready;
  // An operation that is skipped waits for `ready` too: what follows it in the stream, an event
  // that says that memory is free, keeps its place after what this one waits for.
  bool wait_if_skipped = false;
  // Past `deadline` at the head of the stream without becoming ready, `expire` is called once
  // (gate->mutex not held); it must make `ready` true, now or soon. Above kLongestWait: never.
  absl::Duration deadline = absl::InfiniteDuration();
  absl::AnyInvocable<void()> expire;

  // What it throws becomes kInternal.
  absl::AnyInvocable<absl::Status()> run;
  // Called in place of `run`, with the reason, when an earlier operation of the stream failed or a
  // hook refused this one. Must not throw. Null: nothing.
  absl::AnyInvocable<void(const absl::Status&)> skip;

  double cost_us = 0;  // modelled duration, for schedulers with a virtual clock
};

}  // namespace zero
