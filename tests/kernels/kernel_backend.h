// The device that the kernels of a test program run on. Each program of the suite links one
// implementation of what is declared here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/thread_pool.h"

namespace zero {

class KernelBackend {
 public:
  virtual ~KernelBackend() = default;
  virtual Device& device() = 0;
  // Kernels enqueued so far.
  virtual int64_t kernels() const = 0;
};

// `pool` is for devices that are the host.
std::unique_ptr<KernelBackend> NewKernelBackend(ThreadPool* pool);

// Ways to run the same kernels that must not change a bit; the first is the ordinary one.
std::vector<std::string> KernelVariants();
// For the whole process, while no kernel runs.
void SelectKernelVariant(const std::string& name);

}  // namespace zero
