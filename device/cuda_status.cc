#include "device/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

// Why this process has no GPU.
std::string Absence(cudaError_t code) {
  int driver = 0;
  if (code == cudaErrorNoDevice) {
    return "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)";
  }
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no NVIDIA driver is installed";
  }
  return absl::StrCat("the NVIDIA driver supports CUDA ", Version(driver),
                      ", this build was made with ", Version(CUDART_VERSION));
}

}  // namespace

bool LosesContext(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(cudaError_t code, absl::string_view call) {
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(call, ": ", cudaGetErrorString(code), " (",
                                        cudaGetErrorName(code), ", ", static_cast<int>(code), ")");
  if (LosesContext(code)) {
    return absl::InternalError(absl::StrCat(
        text, "; the work of this process on this GPU is lost, and it has to be started again"));
  }
  switch (code) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(text);
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return absl::UnavailableError(
          absl::StrCat("CUDA cannot be used here: ", Absence(code), "; ", text,
                       "; everything runs on the CPU too, with a HostDevice"));
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidConfiguration:
      return absl::InvalidArgumentError(text);
    case cudaErrorNotSupported:
    case cudaErrorNoKernelImageForDevice:
      return absl::UnimplementedError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace zero
