#include "absl/strings/str_cat.h"
#include "collectives/nccl_api.h"

namespace zero {

absl::Status CheckNcclVersion(int version) {
  // Since 2.9 the code is major * 10000 + minor * 100 + patch.
  const int major = version / 10000;
  const int minor = version / 100 % 100;
  if (major == 2 && minor >= 18) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("NCCL has version code ", version,
                                               "; 21800 (2.18.0) to 29999 are supported. Put "
                                               "another libnccl.so.2 first in LD_LIBRARY_PATH"));
}

}  // namespace zero
