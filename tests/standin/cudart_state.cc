#include "tests/standin/cudart_state.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace zero::standin {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

std::vector<std::unique_ptr<DeviceBooks>> NewDevices(const CudartOptions& options) {
  std::vector<std::unique_ptr<DeviceBooks>> devices;
  for (int i = 0; i < options.devices; ++i) {
    devices.push_back(std::make_unique<DeviceBooks>());
    devices.back()->used = options.used_bytes;
  }
  return devices;
}

}  // namespace

State& Books() {
  static State* const state = [] {
    auto* made = new State;  // streams may outlive main
    made->devices = NewDevices(made->options);
    return made;
  }();
  return *state;
}

int& CurrentDevice() {
  thread_local int device = 0;
  return device;
}

bool& InsideOperation() {
  thread_local bool inside = false;
  return inside;
}

DeviceBooks* State::device(int id) const {
  return id >= 0 && id < static_cast<int>(devices.size()) ? devices[id].get() : nullptr;
}

cudaError_t State::Violation(std::string text, cudaError_t error) {
  violations.push_back(std::move(text));
  return error;
}

Place State::Find(const void* data, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto next = memory.upper_bound(address);
  Place place;
  if (next == memory.begin()) return place;
  const auto& [start, books] = *--next;
  if (address >= start + static_cast<uintptr_t>(books.bytes)) return place;
  place.known = true;
  place.fits = static_cast<int64_t>(address - start) <= books.bytes - bytes;
  place.device = books.device;
  place.host = books.host;
  place.number = books.number;
  return place;
}

cudaError_t Ended(int device) {
  // The list of devices changes in Reset only.
  const DeviceBooks* const books = Books().device(device);
  return books == nullptr ? cudaSuccess
                          : static_cast<cudaError_t>(books->ended.load(std::memory_order_relaxed));
}

void End(int device, cudaError_t error, const std::string& reason) {
  std::vector<std::shared_ptr<Gate>> gates;
  {
    State& state = Books();
    const QuietLock lock(state.mutex);
    DeviceBooks* const books = state.device(device);
    if (books == nullptr || books->ended.load(std::memory_order_relaxed) != cudaSuccess) return;
    books->reason = reason;
    books->ended.store(error, std::memory_order_relaxed);
    for (const std::weak_ptr<Gate>& gate : books->gates) {
      if (std::shared_ptr<Gate> waiting = gate.lock()) gates.push_back(std::move(waiting));
    }
  }
  for (const std::shared_ptr<Gate>& gate : gates) {
    { const std::lock_guard<std::mutex> lock(gate->mutex); }
    gate->changed.notify_all();
  }
}

cudaError_t Admit(const char* function) {
  State& state = Books();
  const QuietLock lock(state.mutex);
  if (InsideOperation()) {
    return state.Violation(absl::StrCat(function, ": called from inside an operation of a stream"),
                           cudaErrorNotPermitted);
  }
  const int64_t all = state.all_calls++;
  const int64_t same = state.calls[function]++;
  for (auto fault = state.faults.begin(); fault != state.faults.end(); ++fault) {
    const auto& [name, when] = *fault;
    if (name.empty() ? all != when.first : name != function || same != when.first) continue;
    const cudaError_t error = when.second;
    state.faults.erase(fault);
    return error;
  }
  return state.options.absence;
}

cudaError_t Leave(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void Reset(CudartOptions options) {
  State& state = Books();
  std::map<uintptr_t, std::unique_ptr<StreamBooks>> streams;
  std::map<int, std::unique_ptr<StreamBooks>> default_streams;
  {
    const QuietLock lock(state.mutex);
    streams.swap(state.streams);
    default_streams.swap(state.default_streams);
  }
  streams.clear();
  default_streams.clear();
  const QuietLock lock(state.mutex);
  for (const auto& [address, books] : state.memory) {
    ::operator delete (reinterpret_cast<void*>(address), std::align_val_t{256});
  }
  state.memory.clear();
  state.events.clear();
  state.points.clear();
  state.pinned = 0;
  state.devices = NewDevices(options);
  state.options = std::move(options);
  state.calls.clear();
  state.all_calls = 0;
  state.faults.clear();
  state.violations.clear();
  state.pageable_copies = 0;
  CurrentDevice() = 0;
  last_error = cudaSuccess;
}

void FailCall(const std::string& function, int64_t n, cudaError_t error) {
  State& state = Books();
  const QuietLock lock(state.mutex);
  const int64_t made = function.empty() ? state.all_calls : state.calls[function];
  state.faults.push_back({function, {made + n, error}});
}

bool FaultsAreUsedUp() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  return state.faults.empty();
}

void ForgetFaults() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  state.faults.clear();
}

int64_t Calls(const std::string& function) {
  State& state = Books();
  const QuietLock lock(state.mutex);
  if (function.empty()) return state.all_calls;
  const auto found = state.calls.find(function);
  return found == state.calls.end() ? 0 : found->second;
}

std::vector<std::string> CalledFunctions() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  std::vector<std::string> names;
  for (const auto& [name, count] : state.calls) {
    if (count > 0) names.push_back(name);
  }
  return names;
}

void EndDevice(int device, cudaError_t error) { End(device, error, "EndDevice"); }

void EndDeviceAfter(int device, int64_t n, cudaError_t error) {
  if (n <= 0) return End(device, error, "planned");
  State& state = Books();
  const QuietLock lock(state.mutex);
  DeviceBooks* const books = state.device(device);
  if (books == nullptr) return;
  books->planned_end = error;
  books->operations_left.store(n, std::memory_order_relaxed);
}

std::string EndOf(int device) {
  State& state = Books();
  const QuietLock lock(state.mutex);
  const DeviceBooks* const books = state.device(device);
  return books == nullptr ? "" : books->reason;
}

Live LiveObjects() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  Live live;
  for (const auto& [address, books] : state.memory) {
    ++(books.host ? live.host_allocations : live.allocations);
    (books.host ? live.host_bytes : live.bytes) += books.bytes;
  }
  live.streams = static_cast<int64_t>(state.streams.size());
  live.events = static_cast<int64_t>(state.events.size());
  return live;
}

int64_t PageableCopies() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  return state.pageable_copies;
}

std::vector<std::string> Violations() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  return state.violations;
}

std::vector<std::string> TakeViolations() {
  State& state = Books();
  const QuietLock lock(state.mutex);
  return std::exchange(state.violations, {});
}

}  // namespace zero::standin

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t ended = zero::standin::Ended(zero::standin::CurrentDevice());
  const cudaError_t error = std::exchange(zero::standin::last_error, cudaSuccess);
  return ended != cudaSuccess ? ended : error;
}

cudaError_t cudaPeekAtLastError() { return zero::standin::last_error; }

}  // extern "C"
