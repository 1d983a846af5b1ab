#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/cublaslt_api.h"

namespace zero::llama {
namespace {

template <class F>
absl::Status Find(void* library, const std::string& file, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(file, " has no function ", name));
}

absl::StatusOr<const CublasLtApi*> Load() {
  const std::string file = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return absl::NotFoundError(
        absl::StrCat(file, " cannot be loaded: ", why != nullptr ? why : "no reason given"));
  }
  static CublasLtApi api;
  const auto find = [&](const char* name, auto* function) {
    return Find(library, file, name, function);
  };
  ZERO_RETURN_IF_ERROR(find("cublasLtGetVersion", &api.get_version));
  ZERO_RETURN_IF_ERROR(find("cublasLtGetStatusName", &api.get_status_name));
  ZERO_RETURN_IF_ERROR(find("cublasLtCreate", &api.create));
  ZERO_RETURN_IF_ERROR(find("cublasLtDestroy", &api.destroy));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulDescCreate", &api.matmul_desc_create));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulDescDestroy", &api.matmul_desc_destroy));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulDescSetAttribute", &api.matmul_desc_set_attribute));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatrixLayoutCreate", &api.matrix_layout_create));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatrixLayoutDestroy", &api.matrix_layout_destroy));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulPreferenceCreate", &api.preference_create));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulPreferenceDestroy", &api.preference_destroy));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulPreferenceSetAttribute", &api.preference_set_attribute));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmulAlgoGetHeuristic", &api.get_heuristic));
  ZERO_RETURN_IF_ERROR(find("cublasLtMatmul", &api.matmul));
  return &api;
}

}  // namespace

absl::StatusOr<const CublasLtApi*> LoadCublasLt() {
  // Never unloaded: handles may outlive everything that could know.
  static const absl::StatusOr<const CublasLtApi*> loaded = Load();
  return loaded;
}

}  // namespace zero::llama
