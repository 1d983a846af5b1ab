#include "examples/train/rank_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda_device.h"
#include "device/host_device.h"
#include "device/status.h"
#include "examples/llama/cuda_products.h"
#include "kernels/simd_targets.h"

namespace zero::train {
namespace {

absl::StatusOr<std::unique_ptr<CudaDevice>> MakeCudaDevice(int64_t id, ThreadPool* pool) {
  CudaDevice::Options options;
  options.id = static_cast<int>(id);
  options.host_pool = pool;
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create(options);
  if (device.ok()) return device;
  const absl::Status& why = device.status();
  return absl::Status(why.code(), absl::StrCat("--device cuda: ", why.message(),
                                               "; --device host computes on the CPU"));
}

}  // namespace

void AddDeviceFlags(support::FlagTable& flags, std::string& kind, int64_t& cuda_device,
                    const std::string& what, const std::string& first) {
  flags.AddChoice("device", &kind, {"host", "cuda"}, what);
  flags.AddCount("cuda_device", &cuda_device, -1, 1023, "GPU of --device cuda; -1: " + first);
}

absl::Status CheckDeviceFlags(const std::string& kind, int64_t cuda_device) {
  if (kind == "cuda" || cuda_device < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--cuda_device is ", cuda_device,
                                                 ", but --device is ", kind,
                                                 "; give --device cuda, or leave it out"));
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceChoice& choice, ThreadPool* pool) {
  if (choice.kind == "cuda") {
    ZERO_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device,
                          MakeCudaDevice(choice.cuda_device, pool));
    return device;
  }
  HostDevice::Options options;
  options.pool = pool;
  return std::make_unique<HostDevice>(options);
}

absl::StatusOr<std::string> DescribeDevice(const DeviceChoice& choice, int64_t threads) {
  if (choice.kind != "cuda") {
    return absl::StrCat(choice.kind, ", ", threads, " threads, ", SimdTargetName());
  }
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device,
                        MakeCudaDevice(choice.cuda_device, nullptr));
  return absl::StrCat("cuda ", choice.cuda_device, ", ", device->properties().name, ", ",
                      llama::CudaProducts::Library());
}

int64_t ProductWorkspaceBytes(const std::string& kind) {
  return kind == "cuda" ? llama::CudaProducts::kWorkspaceBytes : 0;
}

}  // namespace zero::train
