// What a rank computes on, as the flags --device and --cuda_device say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "device/device.h"
#include "device/thread_pool.h"
#include "examples/support/flags.h"

namespace zero::train {

struct DeviceChoice {
  std::string kind = "host";  // or "cuda"
  int64_t cuda_device = 0;    // as CUDA numbers the GPUs that this process sees
};

// Describes both flags: `what` computes there, and which GPU is meant by -1.
void AddDeviceFlags(support::FlagTable& flags, std::string& kind, int64_t& cuda_device,
                    const std::string& what, const std::string& first);

// kInvalidArgument: --cuda_device without --device cuda.
absl::Status CheckDeviceFlags(const std::string& kind, int64_t cuda_device);

// `pool` is for kernels on the host, those that update what is offloaded from a GPU included; null:
// the stream's own thread. Errors name --device.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceChoice& choice, ThreadPool* pool);

// One line for people: what the device is and what does its products. Fails where MakeDevice would.
absl::StatusOr<std::string> DescribeDevice(const DeviceChoice& choice, int64_t threads);

// Device memory that products want besides their operands.
int64_t ProductWorkspaceBytes(const std::string& kind);

}  // namespace zero::train
