// The host, under the name of a GPU: what works for any device, tried without CUDA.
#pragma once

#include "device/host_device.h"

namespace zero::test {

class HostAsGpu : public HostDevice {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
};

}  // namespace zero::test
