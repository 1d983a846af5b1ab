#include "tests/emulation/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#if ZERO_EMULATION_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if ZERO_EMULATION_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Not swapcontext: AddressSanitizer's version of it forgets what it knows of the stack, so that
// overruns of local arrays after the first switch go unseen.
asm(R"(
.text
.type zero_emulation_switch_stack, @function
zero_emulation_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size zero_emulation_switch_stack, .-zero_emulation_switch_stack
.type zero_emulation_first_frame, @function
zero_emulation_first_frame:
  movq %r12, %rdi
  xorl %ebp, %ebp
  jmp *%r13
.size zero_emulation_first_frame, .-zero_emulation_first_frame
)");

extern "C" {
void zero_emulation_switch_stack(void** save, void* load);
void zero_emulation_first_frame();
}

namespace zero::emulation {
namespace {

// Reserved, not used: pages come with the first touch. Reports of sanitizers run on it too.
constexpr size_t kStackBytes = 256 << 10;

// What a fiber must do first on its stack, and a thread that is switched back to.
void Arrive([[maybe_unused]] Context* here) {
#if ZERO_EMULATION_ASAN
  __sanitizer_finish_switch_fiber(here->fake_stack, nullptr, nullptr);
#endif
}

}  // namespace

void DescribeThread([[maybe_unused]] Context* context) {
#if ZERO_EMULATION_ASAN
  pthread_attr_t attributes;
  void* bottom = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
  }
  context->stack_bottom = bottom;
  context->stack_bytes = bytes;
#endif
#if ZERO_EMULATION_TSAN
  context->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void Switch(Context* from, Context* to) {
#if ZERO_EMULATION_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_bottom, to->stack_bytes);
#endif
#if ZERO_EMULATION_TSAN
  __tsan_switch_to_fiber(to->tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
  zero_emulation_switch_stack(&from->stack_pointer, to->stack_pointer);
  Arrive(from);
}

Fiber::Fiber(void (*main)(void*), void* argument) : main_(main), argument_(argument) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // An overflow must stop here, not write into the next stack.
  mprotect(memory, page, PROT_NONE);
  char* const bottom = static_cast<char*>(memory) + page;
  context_.stack_bottom = bottom;
  context_.stack_bytes = kStackBytes;
  // What the first switch pops: r15, r14, r13, r12, rbx, rbp, the address to go to.
  void** top = reinterpret_cast<void**>(bottom + kStackBytes) - 8;
  top[0] = nullptr;
  top[1] = nullptr;
  top[2] = reinterpret_cast<void*>(&Fiber::Enter);
  top[3] = this;
  top[4] = nullptr;
  top[5] = nullptr;
  top[6] = reinterpret_cast<void*>(&zero_emulation_first_frame);
  top[7] = nullptr;
  context_.stack_pointer = top;
#if ZERO_EMULATION_TSAN
  context_.tsan_fiber = __tsan_create_fiber(0);
#endif
}

void Fiber::Enter(Fiber* fiber) {
  Arrive(&fiber->context_);
  fiber->main_(fiber->argument_);
  __builtin_trap();  // there is no frame to return to
}

void Release([[maybe_unused]] void* address) {
#if ZERO_EMULATION_TSAN
  __tsan_release(address);
#endif
}

void Acquire([[maybe_unused]] void* address) {
#if ZERO_EMULATION_TSAN
  __tsan_acquire(address);
#endif
}

}  // namespace zero::emulation
