#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "collectives/nccl_api.h"
#include "device/status.h"

namespace zero {
namespace {

// dlerror() is null when the last call was fine.
const char* LoaderError() {
  const char* const text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

// Finds functions, and remembers the first that is not there.
class Symbols {
 public:
  Symbols(void* library, const char* file) : library_(library), file_(file) {}

  template <class Function>
  void Find(const char* name, Function& function) {
    void* const found = dlsym(library_, name);
    if (found == nullptr && status_.ok()) {
      status_ = absl::UnimplementedError(
          absl::StrCat(file_, " has no function ", name, ": ", LoaderError()));
    }
    function = reinterpret_cast<Function>(found);
  }
  const absl::Status& status() const { return status_; }

 private:
  void* const library_;
  const char* const file_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<NcclApi> LoadNcclFrom(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("NCCL cannot be loaded: ", LoaderError(),
                     ". Install NCCL 2 (libnccl2), or put its folder into LD_LIBRARY_PATH"));
  }
  NcclApi api;
  Symbols symbols(library, file);
  symbols.Find("ncclGetVersion", api.get_version);
  symbols.Find("ncclGetErrorString", api.get_error_string);
  symbols.Find("ncclGetLastError", api.get_last_error);
  symbols.Find("ncclGetUniqueId", api.get_unique_id);
  symbols.Find("ncclCommInitRankConfig", api.comm_init_rank_config);
  symbols.Find("ncclCommGetAsyncError", api.comm_get_async_error);
  symbols.Find("ncclCommFinalize", api.comm_finalize);
  symbols.Find("ncclCommDestroy", api.comm_destroy);
  symbols.Find("ncclCommAbort", api.comm_abort);
  symbols.Find("ncclGroupStart", api.group_start);
  symbols.Find("ncclGroupEnd", api.group_end);
  symbols.Find("ncclSend", api.send);
  symbols.Find("ncclRecv", api.recv);
  symbols.Find("ncclAllGather", api.all_gather);
  symbols.Find("ncclReduce", api.reduce);
  symbols.Find("ncclReduceScatter", api.reduce_scatter);
  ZERO_RETURN_IF_ERROR(symbols.status());
  if (const ncclResult_t result = api.get_version(&api.version); result != ncclSuccess) {
    return absl::UnimplementedError(
        absl::StrCat(file, ": ncclGetVersion: ", api.get_error_string(result)));
  }
  ZERO_RETURN_IF_ERROR(CheckNcclVersion(api.version));
  return api;
}

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const auto* const loaded = new absl::StatusOr<NcclApi>(LoadNcclFrom("libnccl.so.2"));
  ZERO_RETURN_IF_ERROR(loaded->status());
  return &**loaded;
}

}  // namespace zero
