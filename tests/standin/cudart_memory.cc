// Memory, copies and fills of the cudart stand-in.
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/standin/cudart_state.h"

namespace zero::standin {
namespace {

// Exactly `bytes`, so that AddressSanitizer sees what reads or writes beyond.
void* NewMemory(size_t bytes) { return ::operator new(bytes, kMemoryAlignment, std::nothrow); }

cudaError_t Allocate(void** data, size_t size, bool host) {
  const int64_t bytes = static_cast<int64_t>(size);
  const int current = CurrentDevice();
  if (Ended(current) != cudaSuccess) return Ended(current);
  State& state = Books();
  const auto used = [&]() -> int64_t& { return host ? state.pinned : state.device(current)->used; };
  {
    const QuietLock lock(state.mutex);
    const int64_t all = host ? state.options.pinnable_bytes : state.options.total_bytes;
    // As a subtraction: a huge request wraps nowhere.
    if (bytes < 0 || (all >= 0 && bytes > all - used())) return cudaErrorMemoryAllocation;
    used() += bytes;
  }
  void* const made = NewMemory(size);
  const QuietLock lock(state.mutex);
  if (made == nullptr) {
    used() -= bytes;
    return cudaErrorMemoryAllocation;
  }
  state.memory[reinterpret_cast<uintptr_t>(made)] = {bytes, current, host, state.next_number++};
  *data = made;
  return cudaSuccess;
}

cudaError_t Free(const char* function, void* data, bool host) {
  if (data == nullptr) return cudaSuccess;
  State& state = Books();
  int device = 0;
  {
    const QuietLock lock(state.mutex);
    const auto found = state.memory.find(reinterpret_cast<uintptr_t>(data));
    if (found == state.memory.end() || found->second.host != host) {
      return state.Violation(absl::StrCat(function, ": not the start of memory that ",
                                          host ? "cudaHostAlloc" : "cudaMalloc", " gave, or freed"),
                             cudaErrorInvalidValue);
    }
    device = found->second.device;
    (host ? state.pinned : state.device(device)->used) -= found->second.bytes;
    const uint64_t number = found->second.number;
    state.memory.erase(found);
    if (state.awaited.count(number) > 0) {
      state.freed_awaited[number] = std::exchange(data, nullptr);
    }
  }
  ::operator delete(data, kMemoryAlignment);
  return Ended(device);
}

bool OfDevice(const Place& place, int device) { return !place.host && place.device == device; }

std::string Describe(const Place& place) {
  if (!place.known) return "memory that is not pinned";
  return place.host ? "pinned memory" : absl::StrCat("memory of device ", place.device);
}

// What is wrong with a copy; empty if nothing is.
std::string CopyFault(const Place& to, const Place& from, cudaMemcpyKind kind, int device) {
  if (!to.known && !from.known) {
    return "neither side is memory of a device, or pinned: freed, or never allocated";
  }
  if (!to.fits || !from.fits) return "it runs past the end of its allocation";
  const bool to_host = to.host;
  const bool from_host = from.host;
  const cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToDevice, cudaMemcpyDeviceToHost,
                                  cudaMemcpyHostToDevice, cudaMemcpyHostToHost};
  if (kind != cudaMemcpyDefault && kind != kinds[(to_host ? 1 : 0) + (from_host ? 2 : 0)]) {
    return absl::StrCat("it is not of the kind given, ", static_cast<int>(kind));
  }
  if ((!to_host || !from_host) && !OfDevice(to, device) && !OfDevice(from, device)) {
    return absl::StrCat("neither side is of device ", device, ", whose stream it is in");
  }
  return "";
}

// Called when the operation runs: whether memory that it was given is still the same.
bool StillThere(const void* data, int64_t bytes, const Place& before, const char* name) {
  if (!before.known) return true;
  State& state = Books();
  const QuietLock lock(state.mutex);
  if (state.Find(data, bytes).number == before.number) return true;
  state.violations.push_back(absl::StrCat(name, ": its memory was freed before it ran"));
  return false;
}

cudaError_t Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
                 StreamBooks* stream) {
  Place target;
  Place source;
  {
    State& state = Books();
    const QuietLock lock(state.mutex);
    target = state.Find(to, bytes);
    source = state.Find(from, bytes);
    const std::string fault = CopyFault(target, source, kind, stream->device);
    if (!fault.empty()) {
      return state.Violation(absl::StrCat("cudaMemcpyAsync of ", bytes, " bytes from ",
                                          Describe(source), " to ", Describe(target), ": ", fault),
                             cudaErrorInvalidValue);
    }
    if (!target.known || !source.known) ++state.pageable_copies;
  }
  Operation copy;
  copy.name = "copy";
  copy.run = [=] {
    if (StillThere(to, bytes, target, "copy") && StillThere(from, bytes, source, "copy")) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
    return absl::OkStatus();
  };
  Push(stream, std::move(copy));
  return cudaSuccess;
}

cudaError_t Fill(void* to, int value, int64_t bytes, StreamBooks* stream) {
  Place target;
  {
    State& state = Books();
    const QuietLock lock(state.mutex);
    target = state.Find(to, bytes);
    if (!target.known || !target.fits || (!target.host && target.device != stream->device)) {
      return state.Violation(
          absl::StrCat("cudaMemsetAsync of ", bytes, " bytes in ", Describe(target),
                       target.fits ? "" : ", past the end of its allocation",
                       ", in a stream of device ", stream->device),
          cudaErrorInvalidValue);
    }
  }
  Operation fill;
  fill.name = "fill";
  fill.run = [=] {
    if (StillThere(to, bytes, target, "fill")) {
      std::memset(to, value, static_cast<size_t>(bytes));
    }
    return absl::OkStatus();
  };
  Push(stream, std::move(fill));
  return cudaSuccess;
}

}  // namespace
}  // namespace zero::standin

using zero::standin::Call;
using zero::standin::Ended;
using zero::standin::FindStream;
using zero::standin::Release;
using zero::standin::StreamBooks;

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Call("cudaMalloc", [&] { return zero::standin::Allocate(data, bytes, /*host=*/false); });
}

cudaError_t cudaFree(void* data) {
  return Release("cudaFree", [&] { return zero::standin::Free("cudaFree", data, false); });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  return Call("cudaHostAlloc", [&] { return zero::standin::Allocate(data, bytes, /*host=*/true); });
}

cudaError_t cudaFreeHost(void* data) {
  return Release("cudaFreeHost", [&] { return zero::standin::Free("cudaFreeHost", data, true); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Call("cudaMemGetInfo", [&] {
    const int current = zero::standin::CurrentDevice();
    if (Ended(current) != cudaSuccess) return Ended(current);
    zero::standin::State& state = zero::standin::Books();
    const zero::standin::QuietLock lock(state.mutex);
    const int64_t used = state.device(current)->used;
    *free = static_cast<size_t>(state.options.total_bytes - used);
    *total = static_cast<size_t>(state.options.total_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Call("cudaMemcpyAsync", [&] {
    StreamBooks* const books = FindStream("cudaMemcpyAsync", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t ended = Ended(books->device);
    return ended != cudaSuccess
               ? ended
               : zero::standin::Copy(to, from, static_cast<int64_t>(bytes), kind, books);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Call("cudaMemsetAsync", [&] {
    StreamBooks* const books = FindStream("cudaMemsetAsync", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t ended = Ended(books->device);
    return ended != cudaSuccess
               ? ended
               : zero::standin::Fill(to, value, static_cast<int64_t>(bytes), books);
  });
}

}  // extern "C"
