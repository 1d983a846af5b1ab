#include "device/cuda_device.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "device/cuda_context.h"
#include "device/cuda_event.h"
#include "device/cuda_host_stream.h"
#include "device/cuda_memory.h"
#include "device/cuda_status.h"
#include "device/cuda_stream.h"
#include "device/status.h"

namespace zero {
namespace {

class CudartDevice : public CudaDevice {
 public:
  explicit CudartDevice(const Options& options)
      : context_(this, options.id, &host_waits_),
        memory_(this, &context_),
        points_(&context_),
        host_side_(&context_, &host_waits_, options.host_pool, options.host_hook) {
    set_capacity(options.capacity);
  }
  absl::Status Initialise();

  int id() const override { return context_.id(); }
  const CudaProperties& properties() const override { return properties_; }
  absl::StatusOr<int64_t> FreeBytes() const override { return memory_.FreeBytes(); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(const std::string& name) override {
    return CudaStream::Create(this, &context_, name);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateHostStream(const std::string& name) override {
    return host_side_.CreateStream(name);
  }
  absl::StatusOr<std::unique_ptr<Stream>> WrapStream(void* cuda_stream,
                                                     const std::string& name) override {
    return CudaStream::Wrap(this, &context_, static_cast<cudaStream_t>(cuda_stream), name);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return CudaEvent::Create(&context_, &points_);
  }
  absl::Status Copy(const Stream& stream, void* to, const void* from, int64_t bytes) override;
  absl::Status Fill(const Stream& stream, void* to, uint8_t value, int64_t bytes) override;
  absl::Status pinning_refusal() const override { return memory_.pinning_refusal(); }
  std::vector<std::string> notes() const override;
  int64_t dropped_errors() const override { return context_.dropped_errors(); }

 protected:
  absl::StatusOr<void*> AllocateBytes(int64_t bytes) override { return memory_.Allocate(bytes); }
  void Free(void* data, int64_t bytes) override { memory_.Free(data, bytes); }
  absl::StatusOr<void*> AllocateHostBytes(int64_t bytes, HostMemory memory) override {
    return memory_.AllocateHost(bytes, memory);
  }
  void FreeHost(void* data, int64_t bytes) override { memory_.FreeHost(data, bytes); }

 private:
  CudaContext context_;
  CudaMemory memory_;
  CudaPoints points_;
  CudaHostSide host_side_;
  CudaProperties properties_;
};

absl::Status CheckSize(const char* operation, int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, " of ", bytes, " bytes"));
}

std::vector<std::string> CudartDevice::notes() const {
  const absl::Status refusal = pinning_refusal();
  if (refusal.ok()) return {};
  return {absl::StrCat("GPU ", id(),
                       ": memory of the host is not pinned, so that copies are slower and hold up "
                       "the thread that enqueues them: ",
                       refusal.message())};
}

bool OfHost(const Stream& stream) { return stream.device().kind() == DeviceKind::kHost; }

absl::Status CudartDevice::Initialise() {
  cudaDeviceProp found;
  ZERO_RETURN_IF_ERROR(context_.Call("cudaGetDeviceProperties",
                                     [&] { return cudaGetDeviceProperties(&found, id()); }));
  char bus_id[32] = "";
  ZERO_RETURN_IF_ERROR(context_.Call("cudaDeviceGetPCIBusId", [&] {
    return cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), id());
  }));
  properties_.name = found.name;
  properties_.major = found.major;
  properties_.minor = found.minor;
  properties_.multiprocessors = found.multiProcessorCount;
  properties_.total_bytes = static_cast<int64_t>(found.totalGlobalMem);
  properties_.pci_bus_id = bus_id;
  return memory_.Initialise();
}

absl::Status CudartDevice::Copy(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return CheckSize("copy", bytes);
  if (OfHost(stream)) return host_side_.device().Copy(stream, to, from, bytes);
  ZERO_RETURN_IF_ERROR(context_.Call("cudaMemcpyAsync", [&] {
    return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                           NativeStream(stream));
  }));
  CountCopy(WayOf(to, from), bytes);
  return absl::OkStatus();
}

absl::Status CudartDevice::Fill(const Stream& stream, void* to, uint8_t value, int64_t bytes) {
  if (bytes <= 0) return CheckSize("fill", bytes);
  if (OfHost(stream)) return host_side_.device().Fill(stream, to, value, bytes);
  return context_.Call("cudaMemsetAsync", [&] {
    return cudaMemsetAsync(to, value, static_cast<size_t>(bytes), NativeStream(stream));
  });
}

}  // namespace

int CudaId(const Device& device) { return static_cast<const CudaDevice&>(device).id(); }

absl::StatusOr<int> CudaDeviceCount() {
  int count = 0;
  const cudaError_t before = cudaPeekAtLastError();
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess) return count;
  if (before == cudaSuccess) (void)cudaGetLastError();
  return CudaStatus(code, "cudaGetDeviceCount");
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const Options& options) {
  ZERO_ASSIGN_OR_RETURN(const int count, CudaDeviceCount());
  if (options.id < 0 || options.id >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", options.id, ": this process sees ", count, ", numbered from 0"));
  }
  auto device = std::make_unique<CudartDevice>(options);
  ZERO_RETURN_IF_ERROR(device->Initialise());
  return std::unique_ptr<CudaDevice>(std::move(device));
}

}  // namespace zero
