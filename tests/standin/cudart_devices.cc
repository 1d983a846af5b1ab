// Devices and error texts of the cudart stand-in.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/standin/cudart_state.h"

namespace zero::standin {
namespace {

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};

// In our own words: tests ask for names and numbers only.
constexpr ErrorText kTexts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "an argument is wrong"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "no memory left"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "the driver did not start"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is too old"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "there is no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "there is no such device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "memory lost a value"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "the handle is wrong"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not yet"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "a kernel used a wrong address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "not allowed here"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
};

const ErrorText* Find(cudaError_t code) {
  for (const ErrorText& text : kTexts) {
    if (text.code == code) return &text;
  }
  return nullptr;
}

std::string BusId(const State& state, int device) {
  if (device < static_cast<int>(state.options.bus_ids.size())) return state.options.bus_ids[device];
  return absl::StrCat("0000:", absl::Hex(device + 1, absl::kZeroPad2), ":00.0");
}

cudaError_t NoSuchDevice(State& state, const char* function, int device) {
  return state.Violation(absl::StrCat(function, ": there is no device ", device),
                         cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace zero::standin

using zero::standin::Books;
using zero::standin::Call;
using zero::standin::CurrentDevice;
using zero::standin::QuietLock;
using zero::standin::State;

extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  const auto* const found = zero::standin::Find(code);
  return found == nullptr ? "another cudaError" : found->name;
}

const char* cudaGetErrorString(cudaError_t code) {
  const auto* const found = zero::standin::Find(code);
  return found == nullptr ? "another error" : found->text;
}

// Works without a driver.
cudaError_t cudaDriverGetVersion(int* version) {
  *version = Books().options.driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return Call("cudaGetDeviceCount", [&] {
    State& state = Books();
    const QuietLock lock(state.mutex);
    *count = static_cast<int>(state.devices.size());
    return cudaSuccess;
  });
}

// Changes and reads a number of the thread: an ended device does not matter.
cudaError_t cudaGetDevice(int* device) {
  return Call("cudaGetDevice", [&] {
    *device = CurrentDevice();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Call("cudaSetDevice", [&] {
    State& state = Books();
    const QuietLock lock(state.mutex);
    if (state.device(device) == nullptr) {
      return zero::standin::NoSuchDevice(state, "cudaSetDevice", device);
    }
    CurrentDevice() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Call("cudaGetDeviceProperties", [&] {
    State& state = Books();
    const QuietLock lock(state.mutex);
    if (state.device(device) == nullptr) {
      return zero::standin::NoSuchDevice(state, "cudaGetDeviceProperties", device);
    }
    *properties = cudaDeviceProp{};
    std::strcpy(properties->name, "Stand-in GPU");
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = 8;
    properties->totalGlobalMem = static_cast<size_t>(state.options.total_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return Call("cudaDeviceGetPCIBusId", [&] {
    State& state = Books();
    const QuietLock lock(state.mutex);
    if (state.device(device) == nullptr) {
      return zero::standin::NoSuchDevice(state, "cudaDeviceGetPCIBusId", device);
    }
    const std::string id = zero::standin::BusId(state, device);
    if (length < static_cast<int>(id.size()) + 1) return cudaErrorInvalidValue;
    std::strcpy(text, id.c_str());
    return cudaSuccess;
  });
}

}  // extern "C"
