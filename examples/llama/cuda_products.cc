#include "examples/llama/cuda_products.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda_stream.h"
#include "device/status.h"
#include "examples/llama/cublaslt_api.h"
#include "examples/llama/cuda_ops.h"

namespace zero::llama {
namespace {

using Matmul = std::unique_ptr<cublasLtMatmulDescOpaque_t, decltype(&::cublasLtMatmulDescDestroy)>;
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, decltype(&::cublasLtMatrixLayoutDestroy)>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(&::cublasLtMatmulPreferenceDestroy)>;

absl::Status ToStatus(const CublasLtApi& api, cublasStatus_t status, const std::string& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": ", api.get_status_name(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

std::string Describe(const Product& p) {
  return absl::StrCat("cublasLtMatmul of [", p.m, ", ", p.k, "] by [", p.k, ", ", p.n, "] in ",
                      Name(p.in_type));
}

auto TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// The largest power of two, up to 256, that divides an address.
uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256u;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

class TiledProducts : public CudaProducts {
 public:
  absl::Status Run(const Stream& stream, const Product& product) override {
    return cuda::TiledProduct(stream, product);
  }
};

// cuBLASLt is column-major: what it sees of a row-major matrix is its transpose, so that it is
// asked for C' = B' A'.
class CublasLtProducts : public CudaProducts {
 public:
  CublasLtProducts(const CublasLtApi& api, cublasLtHandle_t handle, void* workspace,
                   int64_t workspace_bytes)
      : api_(api),
        handle_(handle),
        workspace_(workspace),
        workspace_bytes_(static_cast<size_t>(workspace_bytes)) {}
  ~CublasLtProducts() override {
    plans_.clear();
    (void)api_.destroy(handle_);
  }

  absl::Status Run(const Stream& stream, const Product& p) override {
    if (p.k == 0) return cuda::TiledProduct(stream, p);
    const Key key = KeyOf(p);
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      // The heuristic asks which GPU is current.
      const CurrentCudaDevice current(CudaId(stream.device()));
      ZERO_ASSIGN_OR_RETURN(Plan plan, MakePlan(p));
      found = plans_.emplace(key, std::move(plan)).first;
    }
    const Plan& plan = found->second;
    if (!plan.has_algorithm) return cuda::TiledProduct(stream, p);
    const CurrentCudaDevice current(CudaId(stream.device()));
    const float alpha = 1, beta = p.addend != nullptr ? 1 : 0;
    const void* addend = p.addend != nullptr ? p.addend : p.c;
    return ToStatus(
        api_,
        api_.matmul(handle_, plan.matmul.get(), &alpha, p.b, plan.b.get(), p.a, plan.a.get(), &beta,
                    addend, plan.c.get(), p.c, plan.c.get(), &plan.algorithm, workspace_,
                    workspace_bytes_, NativeStream(stream)),
        Describe(p));
  }

 private:
  // What an algorithm depends on.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, DType,
                         DType, bool, uint32_t, uint32_t, uint32_t, uint32_t>;
  static Key KeyOf(const Product& p) {
    return {p.m,
            p.n,
            p.k,
            p.a_stride,
            p.b_stride,
            p.c_stride,
            p.transpose_a,
            p.transpose_b,
            p.in_type,
            p.out_type,
            p.addend == p.c,
            AlignmentOf(p.a),
            AlignmentOf(p.b),
            AlignmentOf(p.c),
            AlignmentOf(p.addend)};
  }

  struct Plan {
    Matmul matmul;
    Layout a, b, c;
    cublasLtMatmulAlgo_t algorithm = {};
    bool has_algorithm = false;
  };

  // A row-major matrix of `stride` elements from row to row, as cuBLASLt sees it.
  absl::StatusOr<Layout> MakeLayout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
    cublasLtMatrixLayout_t layout = nullptr;
    ZERO_RETURN_IF_ERROR(
        ToStatus(api_,
                 api_.matrix_layout_create(&layout, TypeOf(dtype), static_cast<uint64_t>(columns),
                                           static_cast<uint64_t>(rows), stride),
                 "cublasLtMatrixLayoutCreate"));
    return Layout(layout, api_.matrix_layout_destroy);
  }

  absl::StatusOr<Matmul> MakeMatmul(const Product& p) {
    cublasLtMatmulDesc_t desc = nullptr;
    // Not one of the FAST types, which round fp32 inputs.
    ZERO_RETURN_IF_ERROR(ToStatus(api_,
                                  api_.matmul_desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                                  "cublasLtMatmulDescCreate"));
    Matmul matmul(desc, api_.matmul_desc_destroy);
    const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
      const int32_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      return ToStatus(
          api_, api_.matmul_desc_set_attribute(desc, attribute, &operation, sizeof(operation)),
          "cublasLtMatmulDescSetAttribute");
    };
    ZERO_RETURN_IF_ERROR(transpose(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b));
    ZERO_RETURN_IF_ERROR(transpose(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a));
    return matmul;
  }

  absl::StatusOr<Preference> MakePreference(const Product& p) {
    cublasLtMatmulPreference_t preference = nullptr;
    ZERO_RETURN_IF_ERROR(
        ToStatus(api_, api_.preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
    Preference owner(preference, api_.preference_destroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return ToStatus(api_,
                      api_.preference_set_attribute(preference, attribute, &value, sizeof(value)),
                      "cublasLtMatmulPreferenceSetAttribute");
    };
    // INPLACE adds in whatever order blocks end, OUTPUT_TYPE rounds partial sums.
    ZERO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                             static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    ZERO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes_}));
    ZERO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(p.b)));
    ZERO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(p.a)));
    const void* addend = p.addend != nullptr ? p.addend : p.c;
    ZERO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(addend)));
    ZERO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(p.c)));
    return owner;
  }

  absl::StatusOr<Plan> MakePlan(const Product& p) {
    ZERO_ASSIGN_OR_RETURN(Matmul matmul, MakeMatmul(p));
    ZERO_ASSIGN_OR_RETURN(Layout a, MakeLayout(p.in_type, p.transpose_a ? p.k : p.m,
                                               p.transpose_a ? p.m : p.k, p.a_stride));
    ZERO_ASSIGN_OR_RETURN(Layout b, MakeLayout(p.in_type, p.transpose_b ? p.n : p.k,
                                               p.transpose_b ? p.k : p.n, p.b_stride));
    ZERO_ASSIGN_OR_RETURN(Layout c, MakeLayout(p.out_type, p.m, p.n, p.c_stride));
    ZERO_ASSIGN_OR_RETURN(const Preference preference, MakePreference(p));
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    const cublasStatus_t status =
        api_.get_heuristic(handle_, matmul.get(), b.get(), a.get(), c.get(), c.get(),
                           preference.get(), 1, &best, &found);
    const bool none = status == CUBLAS_STATUS_NOT_SUPPORTED || (found == 0 && status == 0);
    if (!none) ZERO_RETURN_IF_ERROR(ToStatus(api_, status, "cublasLtMatmulAlgoGetHeuristic"));
    Plan plan{std::move(matmul), std::move(a), std::move(b),
              std::move(c),      best.algo,    !none && best.state == CUBLAS_STATUS_SUCCESS};
    return plan;
  }

  const CublasLtApi& api_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
  const size_t workspace_bytes_;
  std::map<Key, Plan> plans_;
};

}  // namespace

std::string CudaProducts::Library() {
  const absl::StatusOr<const CublasLtApi*> api = LoadCublasLt();
  if (!api.ok()) return absl::StrCat("plain kernels (", api.status().message(), ")");
  const size_t version = (*api)->get_version();
  return absl::StrCat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::unique_ptr<CudaProducts>> CudaProducts::Create(Device* device, void* workspace,
                                                                   int64_t workspace_bytes) {
  if (device->kind() != DeviceKind::kCuda) {
    return absl::InvalidArgumentError("CudaProducts: the device is no CUDA device");
  }
  const absl::StatusOr<const CublasLtApi*> api = LoadCublasLt();
  if (!api.ok()) return std::make_unique<TiledProducts>();
  const CurrentCudaDevice current(CudaId(*device));
  cublasLtHandle_t handle = nullptr;
  ZERO_RETURN_IF_ERROR(ToStatus(**api, (*api)->create(&handle), "cublasLtCreate"));
  return std::make_unique<CublasLtProducts>(**api, handle, workspace, workspace_bytes);
}

}  // namespace zero::llama
