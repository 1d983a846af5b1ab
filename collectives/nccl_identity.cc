#include "collectives/nccl_identity.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace zero {
namespace {

std::string FirstLine(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

std::string NcclIdentity::Encode() const {
  // Texts in hexadecimal: any of them may hold anything.
  std::vector<std::string> fields = {absl::StrCat(version),
                                     absl::StrCat(static_cast<int>(status.code()))};
  for (const std::string& text : {host, boot, bus_id, unique_id, std::string(status.message())}) {
    fields.push_back(absl::BytesToHexString(text));
  }
  return absl::StrJoin(fields, ",");
}

absl::StatusOr<NcclIdentity> NcclIdentity::Decode(const std::string& text) {
  const std::vector<std::string> fields = absl::StrSplit(text, ',');
  NcclIdentity identity;
  int code = 0;
  if (fields.size() != 7 || !absl::SimpleAtoi(fields[0], &identity.version) ||
      !absl::SimpleAtoi(fields[1], &code)) {
    return absl::DataLossError(absl::StrCat("not what a rank says of itself: '", text, "'"));
  }
  identity.host = absl::HexStringToBytes(fields[2]);
  identity.boot = absl::HexStringToBytes(fields[3]);
  identity.bus_id = absl::HexStringToBytes(fields[4]);
  identity.unique_id = absl::HexStringToBytes(fields[5]);
  identity.status =
      absl::Status(static_cast<absl::StatusCode>(code), absl::HexStringToBytes(fields[6]));
  return identity;
}

NcclIdentity IdentityOfThisHost() {
  NcclIdentity identity;
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0) identity.host = name;
  identity.boot = FirstLine("/proc/sys/kernel/random/boot_id");
  return identity;
}

absl::Status CheckIdentities(absl::Span<const NcclIdentity> ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].status.ok()) continue;
    return absl::Status(ranks[r].status.code(), absl::StrCat("rank ", r, " on ", ranks[r].host,
                                                             ": ", ranks[r].status.message()));
  }
  std::map<std::pair<std::string, std::string>, size_t> owners;  // by boot and bus id
  for (size_t r = 0; r < ranks.size(); ++r) {
    const NcclIdentity& rank = ranks[r];
    if (rank.version != ranks[0].version) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank 0 on ", ranks[0].host, " has NCCL ", ranks[0].version, ", rank ", r,
                       " on ", rank.host, " has NCCL ", rank.version, "; all ranks need the same"));
    }
    const auto [owner, is_new] = owners.insert({{rank.boot, rank.bus_id}, r});
    if (is_new) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "ranks ", owner->second, " and ", r, " both use GPU ", rank.bus_id, " of host ", rank.host,
        "; NCCL needs a GPU for each rank. Give each rank on a host its own local rank as device, "
        "and see that CUDA_VISIBLE_DEVICES leaves different GPUs to them; to share one GPU, run "
        "the ranks as threads of one process"));
  }
  return absl::OkStatus();
}

}  // namespace zero
