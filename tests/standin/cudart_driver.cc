// The function of CUDA's driver that this project calls, and how it is found.
#include <cudaTypedefs.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/standin/cudart_state.h"

namespace zero::standin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBytes = sizeof(uint32_t);

// Round and round, as the GPU compares.
bool Reached(const uint32_t* at, uint32_t value) {
  const uint32_t now =
      std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(at)).load(std::memory_order_acquire);
  return static_cast<int32_t>(now - value) >= 0;
}

// What is wrong with the memory; empty if nothing is.
std::string Fault(const Place& place, uintptr_t address) {
  if (!place.known || !place.host) return "not pinned memory, or freed";
  if (!place.fits) return "it lies past the end of its allocation";
  return address % kBytes == 0 ? "" : "its address is not a multiple of 4";
}

// While a wait reads memory, it stays, freed or not: a violation is to be told, not to crash.
class Reading {
 public:
  explicit Reading(uint64_t number) : number_(number) {
    State& state = Books();
    const QuietLock lock(state.mutex);
    ++state.awaited[number_];
  }
  ~Reading() {
    State& state = Books();
    void* freed = nullptr;
    {
      const QuietLock lock(state.mutex);
      if (--state.awaited[number_] > 0) return;
      state.awaited.erase(number_);
      const auto found = state.freed_awaited.find(number_);
      if (found == state.freed_awaited.end()) return;
      freed = found->second;
      state.freed_awaited.erase(found);
    }
    ::operator delete(freed, kMemoryAlignment);
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  const uint64_t number_;
};

// The stream's part: looks again and again, since nothing tells it that memory has changed.
absl::Status Await(int device, const uint32_t* at, uint32_t value, const Place& place) {
  State& state = Books();
  const Reading reading(place.number);
  const Clock::time_point start = Clock::now();
  while (true) {
    double limit = 0;
    {
      const QuietLock lock(state.mutex);
      if (state.Find(at, kBytes).number != place.number) {
        state.violations.push_back("cuStreamWaitValue32: its memory was freed before it was over");
        return absl::OkStatus();
      }
      limit = state.options.wait_value_seconds;
    }
    if (Reached(at, value) || Ended(device) != cudaSuccess) return absl::OkStatus();
    if (std::chrono::duration<double>(Clock::now() - start).count() > limit) {
      const std::string text = absl::StrCat("cuStreamWaitValue32: the value ", value,
                                            " was not reached in ", limit, " seconds");
      const QuietLock lock(state.mutex);
      state.violations.push_back(text);
      return absl::DeadlineExceededError(text);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

cudaError_t Enqueue(cudaStream_t stream, CUdeviceptr address, uint32_t value, unsigned int flags) {
  StreamBooks* const books = FindStream("cuStreamWaitValue32", stream);
  if (books == nullptr) return cudaErrorInvalidResourceHandle;
  const cudaError_t ended = Ended(books->device);
  if (ended != cudaSuccess) return ended;
  const auto* const at = reinterpret_cast<const uint32_t*>(address);
  Place place;
  {
    State& state = Books();
    const QuietLock lock(state.mutex);
    place = state.Find(at, kBytes);
    const std::string fault = flags == CU_STREAM_WAIT_VALUE_GEQ
                                  ? Fault(place, static_cast<uintptr_t>(address))
                                  : "another comparison than >=";
    if (!fault.empty()) {
      return state.Violation("cuStreamWaitValue32: " + fault, cudaErrorInvalidValue);
    }
  }
  Operation wait;
  wait.name = "wait for a value";
  wait.run = [device = books->device, at, value, place] { return Await(device, at, value, place); };
  Push(books, std::move(wait));
  return cudaSuccess;
}

// Codes of the driver are those of the runtime. They are not left for cudaGetLastError.
CUresult CUDAAPI WaitValue(CUstream stream, CUdeviceptr address, cuuint32_t value,
                           unsigned int flags) {
  const cudaError_t refused = Admit("cuStreamWaitValue32");
  return static_cast<CUresult>(refused != cudaSuccess ? refused
                                                      : Enqueue(stream, address, value, flags));
}

}  // namespace
}  // namespace zero::standin

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return zero::standin::Call("cudaGetDriverEntryPointByVersion", [&] {
    zero::standin::State& state = zero::standin::Books();
    const zero::standin::QuietLock lock(state.mutex);
    if (static_cast<int>(version) > state.options.driver_version) return cudaErrorInvalidValue;
    const bool known = std::strcmp(symbol, "cuStreamWaitValue32") == 0 && state.options.wait_value;
    // Before 11.7 the name meant a function that needed an option of the driver.
    const bool there = known && version >= 11070;
    *function = there ? reinterpret_cast<void*>(&zero::standin::WaitValue) : nullptr;
    *result = there   ? cudaDriverEntryPointSuccess
              : known ? cudaDriverEntryPointVersionNotSufficent
                      : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}

}  // extern "C"
