#include "tests/standin/cublaslt.h"

#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "examples/llama/cublaslt_api.h"
#include "kernels/bfloat16_math.h"
#include "kernels/float16_math.h"
#include "tests/standin/cudart.h"

namespace zero::standin {
namespace {

struct Desc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
};
struct LayoutOf {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  bool operator==(const LayoutOf&) const = default;
};
struct PreferenceOf {
  uint64_t workspace = 0;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
// What the heuristic wrote into an algorithm, for the call that uses it to be checked against.
struct Chosen {
  int32_t transpose_a, transpose_b;
  LayoutOf a, b, c;
  PreferenceOf preference;
};

struct State {
  std::mutex mutex;
  bool loadable = true, supported = true;
  std::string failing;
  int64_t fail_in = 0;
  cublasStatus_t fail_with = CUBLAS_STATUS_SUCCESS;
  std::map<std::string, int64_t> calls;
  std::set<const void*> live;
  std::map<uint64_t, Chosen> chosen;
  std::string complaint;
};
State& Global() {
  static State* const state = new State;
  return *state;
}

// Counts the call. True: it must return `status` at once.
bool Fails(const char* function, cublasStatus_t* status) {
  State& state = Global();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ++state.calls[function];
  if (state.fail_in == 0 || (!state.failing.empty() && state.failing != function)) return false;
  if (--state.fail_in != 0) return false;
  *status = state.fail_with;
  return true;
}

cublasStatus_t Refuse(const std::string& complaint) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().complaint = complaint;
  return CUBLAS_STATUS_INVALID_VALUE;
}

bool Live(const void* object) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().live.count(object) != 0;
}

template <class Object, class Handle>
cublasStatus_t Make(const char* function, const Object& object, Handle* handle) {
  cublasStatus_t status;
  if (Fails(function, &status)) return status;
  auto* made = new Object(object);
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().live.insert(made);
  *handle = reinterpret_cast<Handle>(made);
  return CUBLAS_STATUS_SUCCESS;
}

// What fails to be destroyed is gone all the same.
template <class Object, class Handle>
cublasStatus_t Destroy(const char* function, Handle handle) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  (void)Fails(function, &status);
  {
    const std::lock_guard<std::mutex> lock(Global().mutex);
    if (Global().live.erase(handle) == 0) {
      Global().complaint = std::string(function) + " of what is not alive";
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  delete reinterpret_cast<Object*>(handle);
  return status;
}

size_t GetVersion() { return CUBLAS_VERSION; }
const char* GetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "another status";
  }
}

cublasStatus_t CreateHandle(cublasLtHandle_t* handle) {
  return Make("cublasLtCreate", int{0}, handle);
}
cublasStatus_t DestroyHandle(cublasLtHandle_t handle) {
  return Destroy<int>("cublasLtDestroy", handle);
}

cublasStatus_t CreateDesc(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                          cudaDataType_t scale) {
  return Make("cublasLtMatmulDescCreate", Desc{compute, scale}, desc);
}
cublasStatus_t DestroyDesc(cublasLtMatmulDesc_t desc) {
  return Destroy<Desc>("cublasLtMatmulDescDestroy", desc);
}
cublasStatus_t SetDesc(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                       const void* value, size_t bytes) {
  cublasStatus_t status;
  if (Fails("cublasLtMatmulDescSetAttribute", &status)) return status;
  if (!Live(desc)) return Refuse("attribute of a descriptor that is not alive");
  auto& object = *reinterpret_cast<Desc*>(desc);
  if (bytes != sizeof(int32_t)) return Refuse("a transpose that is no int32");
  int32_t* const to = attribute == CUBLASLT_MATMUL_DESC_TRANSA   ? &object.transpose_a
                      : attribute == CUBLASLT_MATMUL_DESC_TRANSB ? &object.transpose_b
                                                                 : nullptr;
  if (to == nullptr) return Refuse("an attribute of products that the stand-in does not know");
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CreateLayout(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                            uint64_t columns, int64_t leading) {
  if (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F) {
    return Refuse("a type that is not used here");
  }
  if (rows == 0 || columns == 0) return Refuse("an empty matrix");
  if (leading < static_cast<int64_t>(rows)) return Refuse("a leading dimension below the rows");
  return Make("cublasLtMatrixLayoutCreate", LayoutOf{type, rows, columns, leading}, layout);
}
cublasStatus_t DestroyLayout(cublasLtMatrixLayout_t layout) {
  return Destroy<LayoutOf>("cublasLtMatrixLayoutDestroy", layout);
}

cublasStatus_t CreatePreference(cublasLtMatmulPreference_t* preference) {
  return Make("cublasLtMatmulPreferenceCreate", PreferenceOf(), preference);
}
cublasStatus_t DestroyPreference(cublasLtMatmulPreference_t preference) {
  return Destroy<PreferenceOf>("cublasLtMatmulPreferenceDestroy", preference);
}
cublasStatus_t SetPreference(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                             size_t bytes) {
  cublasStatus_t status;
  if (Fails("cublasLtMatmulPreferenceSetAttribute", &status)) return status;
  if (!Live(preference)) return Refuse("attribute of a preference that is not alive");
  auto& object = *reinterpret_cast<PreferenceOf*>(preference);
  void* to = nullptr;
  size_t size = sizeof(uint32_t);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    to = &object.workspace;
    size = sizeof(uint64_t);
  } else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    to = &object.reduction;
  } else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
    to = &object.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
  }
  if (to == nullptr || bytes != size) return Refuse("a preference of unknown name or size");
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// One operand as it enters the product: element (i, p) is data[i * i_stride + p * p_stride].
struct Operand {
  int64_t i_count, p_count, i_stride, p_stride;
};
Operand OperandOf(const LayoutOf& layout, int32_t transpose, bool first) {
  const auto rows = static_cast<int64_t>(layout.rows);
  const auto columns = static_cast<int64_t>(layout.columns);
  // Column-major: down a column is 1, along a row is the leading dimension.
  if ((transpose == CUBLAS_OP_T) == first) return {columns, rows, layout.leading, 1};
  return {rows, columns, 1, layout.leading};
}

std::string Mismatch(const Desc& desc, const LayoutOf& a, const LayoutOf& b, const LayoutOf& c,
                     const LayoutOf& d) {
  if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F) {
    return "a compute type other than plain fp32";
  }
  if (a.type != b.type) return "operands of two types";
  if (!(c == d)) return "C and D of different layouts";
  if (c.type != CUDA_R_32F && c.type != a.type) return "a result narrower than the operands";
  const Operand left = OperandOf(a, desc.transpose_a, true);
  const Operand right = OperandOf(b, desc.transpose_b, false);
  if (left.p_count != right.p_count || left.i_count != static_cast<int64_t>(c.rows) ||
      right.i_count != static_cast<int64_t>(c.columns)) {
    return "shapes that do not fit";
  }
  return "";
}

cublasStatus_t GetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t preference, int wanted,
                            cublasLtMatmulHeuristicResult_t results[], int* count) {
  cublasStatus_t status;
  if (Fails("cublasLtMatmulAlgoGetHeuristic", &status)) return status;
  for (const void* object :
       {static_cast<const void*>(handle), static_cast<const void*>(desc),
        static_cast<const void*>(a), static_cast<const void*>(b), static_cast<const void*>(c),
        static_cast<const void*>(d), static_cast<const void*>(preference)}) {
    if (!Live(object)) return Refuse("a heuristic on what is not alive");
  }
  if (wanted < 1) return Refuse("a heuristic asked for nothing");
  const auto& product = *reinterpret_cast<const Desc*>(desc);
  const Chosen chosen{product.transpose_a,
                      product.transpose_b,
                      *reinterpret_cast<const LayoutOf*>(a),
                      *reinterpret_cast<const LayoutOf*>(b),
                      *reinterpret_cast<const LayoutOf*>(c),
                      *reinterpret_cast<const PreferenceOf*>(preference)};
  const std::string mismatch =
      Mismatch(product, chosen.a, chosen.b, chosen.c, *reinterpret_cast<const LayoutOf*>(d));
  if (!mismatch.empty()) return Refuse(mismatch);
  if ((chosen.preference.reduction & ~uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) != 0) {
    return Refuse("reduction schemes whose sums are not repeatable or not fp32");
  }
  State& state = Global();
  const std::lock_guard<std::mutex> lock(state.mutex);
  *count = 0;
  if (!state.supported) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint64_t id = state.chosen.size() + 1;
  state.chosen[id] = chosen;
  results[0] = {};
  results[0].algo.data[0] = id;
  results[0].workspaceSize = chosen.preference.workspace / 2;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

float At(const void* data, cudaDataType_t type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (type == CUDA_R_16F) return ToFloat(static_cast<const Float16*>(data)[i]);
  return ToFloat(static_cast<const BFloat16*>(data)[i]);
}

struct Call {
  Operand a, b;
  cudaDataType_t in_type, out_type;
  int64_t leading;
  float alpha, beta;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  void* workspace;
  size_t workspace_bytes;
};

void Run(const Call& call) {
  // A library may use all of it.
  if (call.workspace_bytes > 0) std::memset(call.workspace, 0xFF, call.workspace_bytes);
  for (int64_t j = 0; j < call.b.i_count; ++j) {
    for (int64_t i = 0; i < call.a.i_count; ++i) {
      float sum = 0;
      for (int64_t p = 0; p < call.a.p_count; ++p) {
        sum += At(call.a_data, call.in_type, i * call.a.i_stride + p * call.a.p_stride) *
               At(call.b_data, call.in_type, j * call.b.i_stride + p * call.b.p_stride);
      }
      const int64_t at = i + j * call.leading;
      float result = call.alpha * sum;
      // C is not read where beta is 0: it may be NaN.
      if (call.beta != 0) result += call.beta * At(call.c_data, call.out_type, at);
      if (call.out_type == CUDA_R_32F) {
        static_cast<float*>(call.d_data)[at] = result;
      } else if (call.out_type == CUDA_R_16F) {
        static_cast<Float16*>(call.d_data)[at] = ToFloat16(result);
      } else {
        static_cast<BFloat16*>(call.d_data)[at] = ToBFloat16(result);
      }
    }
  }
}

cublasStatus_t Matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                      size_t workspace_bytes, cudaStream_t stream) {
  cublasStatus_t status;
  if (Fails("cublasLtMatmul", &status)) return status;
  for (const void* object :
       {static_cast<const void*>(handle), static_cast<const void*>(desc),
        static_cast<const void*>(a_layout), static_cast<const void*>(b_layout),
        static_cast<const void*>(c_layout), static_cast<const void*>(d_layout)}) {
    if (!Live(object)) return Refuse("a product of what is not alive");
  }
  if (algorithm == nullptr) return Refuse("a product that leaves its algorithm to chance");
  Chosen chosen;
  {
    const std::lock_guard<std::mutex> lock(Global().mutex);
    const auto found = Global().chosen.find(algorithm->data[0]);
    if (found == Global().chosen.end()) {
      Global().complaint = "an algorithm that no heuristic gave";
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    chosen = found->second;
  }
  const auto& product = *reinterpret_cast<const Desc*>(desc);
  const auto& left = *reinterpret_cast<const LayoutOf*>(a_layout);
  const auto& right = *reinterpret_cast<const LayoutOf*>(b_layout);
  const auto& result = *reinterpret_cast<const LayoutOf*>(c_layout);
  const std::string mismatch =
      Mismatch(product, left, right, result, *reinterpret_cast<const LayoutOf*>(d_layout));
  if (!mismatch.empty()) return Refuse(mismatch);
  if (product.transpose_a != chosen.transpose_a || product.transpose_b != chosen.transpose_b ||
      !(left == chosen.a) || !(right == chosen.b) || !(result == chosen.c)) {
    return Refuse("an algorithm chosen for another product");
  }
  if (workspace_bytes < chosen.preference.workspace / 2) return Refuse("too small a workspace");
  if (workspace_bytes > 0 && reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
    return Refuse("a workspace that is not 256-byte aligned");
  }
  const void* const data[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (data[i] == nullptr) return Refuse("a null matrix");
    if (reinterpret_cast<uintptr_t>(data[i]) % chosen.preference.alignment[i] != 0) {
      return Refuse("a matrix less aligned than the heuristic was told");
    }
  }
  Call call{OperandOf(left, product.transpose_a, true),
            OperandOf(right, product.transpose_b, false),
            left.type,
            result.type,
            result.leading,
            *static_cast<const float*>(alpha),
            *static_cast<const float*>(beta),
            a,
            b,
            c,
            d,
            workspace,
            workspace_bytes};
  return EnqueueKernel(stream, "cublasLtMatmul", [call] { Run(call); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

constexpr llama::CublasLtApi kApi = {
    GetVersion,        GetStatusName, CreateHandle, DestroyHandle, CreateDesc,
    DestroyDesc,       SetDesc,       CreateLayout, DestroyLayout, CreatePreference,
    DestroyPreference, SetPreference, GetHeuristic, Matmul};

}  // namespace

void ResetCublasLt() {
  State& state = Global();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.loadable = state.supported = true;
  state.fail_in = 0;
  state.calls.clear();
  state.complaint.clear();
}
void SetCublasLtLoadable(bool loadable) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().loadable = loadable;
}
void FailCublasLt(const std::string& function, int64_t nth, cublasStatus_t status) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().failing = function;
  Global().fail_in = nth;
  Global().fail_with = status;
}
void SetCublasLtSupported(bool supported) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().supported = supported;
}
int64_t CublasLtCalls(const std::string& function) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().calls[function];
}
int64_t CublasLtLiveObjects() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return static_cast<int64_t>(Global().live.size());
}
std::string CublasLtComplaint() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().complaint;
}

}  // namespace zero::standin

namespace zero::llama {

absl::StatusOr<const CublasLtApi*> LoadCublasLt() {
  const std::lock_guard<std::mutex> lock(standin::Global().mutex);
  if (!standin::Global().loadable) return absl::NotFoundError("the stand-in is set to be absent");
  return &standin::kApi;
}

}  // namespace zero::llama
