#include "examples/train/offload_options.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/support/text.h"
#include "io/posix_file.h"

namespace zero::train {
namespace {

constexpr double kSmallestRatio = 1e-6;

// The flags allow these names only.
Place PlaceOf(const std::string& name) {
  if (name == "cpu") return Place::kHost;
  return name == "nvme" ? Place::kNvme : Place::kDevice;
}

std::string NameOf(Place place) { return place == Place::kDevice ? "none" : Name(place); }

template <class... Text>
absl::Status Wrong(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

}  // namespace

void AddPlaceFlags(support::FlagTable& flags, OffloadOptions& options) {
  flags.AddChoice("offload_optimizer", &options.optimizer, {"none", "cpu", "nvme"},
                  "where masters and moments lie, and are updated on the host");
  flags.AddChoice("offload_param", &options.parameters, {"none", "cpu", "nvme"},
                  "where slices of weights lie in stage 3, with their states");
  flags.AddNumber("offload_ratio", &options.ratio, kSmallestRatio, 1,
                  "share of each slice that is offloaded; the rest stays");
  flags.AddSwitch("offload_gradients", &options.gradients,
                  "stored gradients lie with offloaded states; false: they stay");
  flags.AddText("nvme_path", &options.nvme_path, "FOLDER",
                "on the disk of nvme; holds a folder of each rank while the run lasts");
}

void AddMemoryFlags(support::FlagTable& flags, OffloadOptions& options) {
  flags.AddSize("host_memory", &options.host_memory, 0,
                "for what is offloaded, of all ranks of a process; 0: no limit");
  flags.AddSize("device_memory", &options.device_memory, 0,
                "of a rank on what it computes on; 0: no limit");
}

void GiveOffload(const support::FlagTable& flags, const OffloadOptions& options,
                 ConfigContext& context) {
  const auto give = [&](const char* flag, const char* path, const auto& value) {
    if (flags.Given(flag)) context.given[path] = {absl::StrCat("--", flag), value};
  };
  give("offload_optimizer", "zero_optimization.offload_optimizer.device", options.optimizer);
  give("offload_param", "zero_optimization.offload_param.device", options.parameters);
  give("offload_ratio", "zero_optimization.offload_optimizer.ratio", options.ratio);
  give("nvme_path", "nvme_path", options.nvme_path);
}

void SetOffload(const Offload& file, OffloadOptions& options) {
  options.optimizer = NameOf(file.optimizer);
  options.parameters = NameOf(file.parameters);
  options.ratio = file.ratio;
  // Whatever is given and unused is still said to be.
  if (!file.nvme_path.empty()) options.nvme_path = file.nvme_path;
}

Offload OffloadOf(const OffloadOptions& options, const Offload& beside) {
  Offload offload = beside;
  offload.optimizer = PlaceOf(options.optimizer);
  offload.parameters = PlaceOf(options.parameters);
  offload.ratio = options.ratio;
  offload.gradients = options.gradients;
  offload.nvme_path = options.nvme_path;
  if (options.buffers > 0) offload.buffer_count = options.buffers;
  return offload;
}

absl::Status CheckPlaces(const OffloadOptions& options, int64_t stage) {
  if (options.optimizer != "none" && stage < 1) {
    return Wrong("--offload_optimizer is ", options.optimizer,
                 ", but --stage is 0, which keeps all states on every rank; it must be 1, 2 or 3");
  }
  if (options.parameters != "none" && stage < 3) {
    return Wrong("--offload_param is ", options.parameters, ", but --stage is ", stage,
                 ", which keeps all weights on every rank; it must be 3");
  }
  if (options.parameters != "none" && options.optimizer == "none") {
    return Wrong("--offload_param is ", options.parameters,
                 ", but --offload_optimizer is none: weights are offloaded only together with "
                 "their states; it must be cpu or nvme");
  }
  return absl::OkStatus();
}

absl::Status CheckOffloadOptions(const OffloadOptions& options, int64_t stage) {
  ZERO_RETURN_IF_ERROR(CheckPlaces(options, stage));
  if (options.on_disk() && options.nvme_path.empty()) {
    return Wrong("--nvme_path is missing; ",
                 options.optimizer == "nvme" ? "--offload_optimizer" : "--offload_param",
                 " nvme needs a folder on a disk");
  }
  return absl::OkStatus();
}

absl::Status CheckOffloadEffects(const support::FlagTable& flags, const OffloadOptions& options,
                                 int64_t stage, bool stages_vary) {
  const char* const any = "--offload_optimizer cpu or nvme";
  const struct {
    const char* flag;
    bool effective;
    const char* belongs;
  } rules[] = {{"offload_ratio", options.any(), any},
               {"offload_gradients", options.any() && (stage >= 2 || stages_vary),
                "--offload_optimizer cpu or nvme with --stage 2 or 3"},
               {"nvme_path", options.on_disk(), "--offload_optimizer nvme or --offload_param nvme"},
               {"host_memory", options.any(), any}};
  for (const auto& rule : rules) {
    if (rule.effective || !flags.Given(rule.flag)) continue;
    return Wrong("--", rule.flag, " is given, but has no effect: it belongs to ", rule.belongs);
  }
  return absl::OkStatus();
}

absl::Status CheckNvmePath(const OffloadOptions& options) {
  if (!options.on_disk()) return absl::OkStatus();
  const std::string& path = options.nvme_path;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Wrong("--nvme_path: '", path, "' does not exist; it must be a folder on the disk");
  }
  if (!std::filesystem::is_directory(path, error)) {
    return Wrong("--nvme_path: '", path, "' is no folder; it must be one on the disk");
  }
  if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return Wrong("--nvme_path: '", path, "' cannot be written to: ", std::strerror(errno));
  }
  // What the system itself shows as a folder, /proc say, holds no files of others.
  const std::string probe = absl::StrCat(path, "/.probe.", getpid(), ".tmp");
  const absl::StatusOr<PosixFile> file = PosixFile::CreateNew(probe);
  std::filesystem::remove(probe, error);
  if (file.ok() || absl::IsAlreadyExists(file.status())) return absl::OkStatus();
  return Wrong("--nvme_path: '", path, "' cannot hold a file, and must be on a disk: ",
               std::string(file.status().message()));
}

std::string OffloadLines(const OffloadOptions& options) {
  return absl::StrCat("\n--offload_optimizer=", options.optimizer,
                      "\n--offload_param=", options.parameters, "\n--offload_ratio=", options.ratio,
                      "\n--offload_gradients=", options.gradients);
}

std::string OffloadText(const OffloadOptions& options) {
  return absl::StrCat("optimizer ", options.optimizer,
                      options.gradients ? "" : " without gradients", ", parameters ",
                      options.parameters,
                      options.ratio < 1 ? absl::StrCat(", ", options.ratio, " of each slice") : "");
}

std::string DescribeOffload(const OffloadOptions& options, int64_t host_bytes, int64_t disk_bytes,
                            int64_t threads, bool during_backward) {
  if (!options.any()) return "";
  std::vector<std::string> where;
  if (host_bytes > 0) {
    where.push_back(absl::StrCat(support::Megabytes(host_bytes), " of the host's memory"));
  }
  if (disk_bytes > 0) {
    where.push_back(absl::StrCat(support::Megabytes(disk_bytes), " in ", options.nvme_path));
  }
  return absl::StrCat("offload     ", OffloadText(options), where.empty() ? "" : ": ",
                      absl::StrJoin(where, " and "), where.empty() ? "" : " for each rank",
                      "; updated by ", threads, threads == 1 ? " thread" : " threads",
                      " of the host", during_backward ? "; units step during backward" : "", "\n");
}

}  // namespace zero::train
