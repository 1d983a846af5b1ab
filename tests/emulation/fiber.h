// A stack of its own to run on, switched to and from by hand. AddressSanitizer and ThreadSanitizer
// are told of each switch.
#pragma once

#include <cstddef>

namespace zero::emulation {

// A place that execution can be switched to: a fiber, or the thread that runs fibers.
struct Context {
  void* stack_pointer = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* tsan_fiber = nullptr;  // ThreadSanitizer's
};

// What the calling thread runs on now. Fills in what the sanitizers need to come back here.
void DescribeThread(Context* context);

// Leaves `from` and goes on in `to`, where that was left. No order between the two is implied for
// ThreadSanitizer.
void Switch(Context* from, Context* to);

// Calls main(argument) on a new stack at the first switch to it. `main` must not return. Lives as
// long as the process: ThreadSanitizer takes half a millisecond to make one.
class Fiber {
 public:
  Fiber(void (*main)(void*), void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  Context* context() { return &context_; }

 private:
  static void Enter(Fiber* fiber);

  Context context_;
  void (*const main_)(void*);
  void* const argument_;
};

// Order for ThreadSanitizer, as of a mutex: what came before Release(x) is seen after Acquire(x).
void Release(void* address);
void Acquire(void* address);

}  // namespace zero::emulation
