// Products on a CUDA device: by cuBLASLt where it can be loaded, else by a plain kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"
#include "device/stream.h"
#include "examples/llama/product.h"

namespace zero::llama {

// What a user of products keeps from one to the next: the library's handle, its choice of algorithm
// for each shape, and a workspace. Products that share one must be ordered, on one stream or by
// events, as their users' buffers are. One thread at a time.
//
// fp32 is fp32 throughout, never TF32. Partial sums are only added in fixed order and in fp32:
// equal arguments give equal bits on one kind of GPU and one version of the library.
class CudaProducts {
 public:
  // What cuBLASLt makes good use of.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  // Which of the two does products in this process, for people: "cuBLASLt 13.1.0".
  static std::string Library();

  // `device` is a CUDA device; `workspace` (its memory, 256-byte aligned; may be null with 0 bytes)
  // must live as long as products run. kUnimplemented in a build without CUDA.
  static absl::StatusOr<std::unique_ptr<CudaProducts>> Create(Device* device, void* workspace,
                                                              int64_t workspace_bytes);
  virtual ~CudaProducts() = default;
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  // Enqueues. The first product of a shape chooses its algorithm; later ones allocate nothing. A
  // shape that cuBLASLt has no algorithm for goes to the plain kernel.
  virtual absl::Status Run(const Stream& stream, const Product& product) = 0;

 protected:
  CudaProducts() = default;
};

}  // namespace zero::llama
