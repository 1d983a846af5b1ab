// The functions of cuBLASLt that products use, as a table: the library is loaded when it is needed,
// since linking it costs every process its start.
#pragma once

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace zero::llama {

struct CublasLtApi {
  decltype(&::cublasLtGetVersion) get_version;
  decltype(&::cublasLtGetStatusName) get_status_name;
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&::cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&::cublasLtMatrixLayoutCreate) matrix_layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) matrix_layout_destroy;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set_attribute;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&::cublasLtMatmul) matmul;
};

// The table, loaded once and kept for the process. kNotFound: no library of the version that this
// program was compiled for, or one that lacks a function; names it and what the system said.
absl::StatusOr<const CublasLtApi*> LoadCublasLt();

}  // namespace zero::llama
