// cuBLASLt on the host, stricter than the real one: what stands behind LoadCublasLt in programs
// that link this object. Products run as kernels of their stream. One process-wide state.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

namespace zero::standin {

// As a new process: nothing counted, no faults, loadable.
void ResetCublasLt();

// Whether LoadCublasLt finds the library.
void SetCublasLtLoadable(bool loadable);

// The `nth` call from now (1, 2, ...) of `function` returns `status` and does nothing. "" is any
// function that returns a status.
void FailCublasLt(const std::string& function, int64_t nth, cublasStatus_t status);

// Whether the heuristic has an algorithm for what it is asked next.
void SetCublasLtSupported(bool supported);

// Calls of `function` ("cublasLtMatmul") since the reset.
int64_t CublasLtCalls(const std::string& function);

// Handles, descriptors, layouts and preferences that were not destroyed.
int64_t CublasLtLiveObjects();

// Why the last call that the stand-in refused was refused; empty: none was.
std::string CublasLtComplaint();

}  // namespace zero::standin
