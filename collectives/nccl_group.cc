#include "collectives/nccl_group.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl_identity.h"
#include "collectives/nccl_rank.h"
#include "collectives/nccl_status.h"
#include "device/status.h"

namespace zero {
namespace {

absl::Status CheckEnvironment() {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking == nullptr || std::strcmp(blocking, "0") == 0 || blocking[0] == '\0') {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "CUDA_LAUNCH_BLOCKING=", blocking,
      " makes a rank wait inside a collective that the others cannot start; unset it"));
}

absl::StatusOr<std::string> MakeUniqueId(const NcclApi& api) {
  ncclUniqueId id;
  ZERO_RETURN_IF_ERROR(
      NcclStatus(api, api.get_unique_id(&id), "meeting point of NCCL", "ncclGetUniqueId"));
  return std::string(id.internal, sizeof(id.internal));
}

// What this rank brings. A failure is in its status, so that every rank learns of it.
NcclIdentity Introduce(const absl::StatusOr<const NcclApi*>& api, const CudaDevice& device,
                       int rank) {
  NcclIdentity identity = IdentityOfThisHost();
  identity.bus_id = device.properties().pci_bus_id;
  identity.status = api.status();
  if (identity.status.ok()) identity.status = CheckEnvironment();
  if (!identity.status.ok()) return identity;
  identity.version = (*api)->version;
  if (rank != 0) return identity;
  absl::StatusOr<std::string> unique_id = MakeUniqueId(**api);
  identity.status = unique_id.status();
  if (unique_id.ok()) identity.unique_id = *std::move(unique_id);
  return identity;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(CudaDevice* device,
                                                              ControlChannel* control,
                                                              const NcclOptions& options) {
  const absl::StatusOr<const NcclApi*> api = LoadNccl();
  ZERO_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      control->Exchange("nccl", Introduce(api, *device, control->rank()).Encode()));
  std::vector<NcclIdentity> identities;
  for (const std::string& text : texts) {
    ZERO_ASSIGN_OR_RETURN(NcclIdentity identity, NcclIdentity::Decode(text));
    identities.push_back(std::move(identity));
  }
  ZERO_RETURN_IF_ERROR(CheckIdentities(identities));
  auto group = std::make_unique<NcclRank>(**api, device, control, options.deadline);
  ZERO_RETURN_IF_ERROR(group->Start(identities));
  return group;
}

}  // namespace zero
