// The flags about what is offloaded, and about how much memory there is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "examples/support/flags.h"
#include "zero/config.h"
#include "zero/deepspeed_config.h"

namespace zero::train {

// By the names of the flags, --offload_optimizer and so on.
struct OffloadOptions {
  std::string optimizer = "none";
  std::string parameters = "none";
  double ratio = 1;
  bool gradients = true;
  std::string nvme_path;
  int64_t buffers = 0;  // Offload::buffer_count, of which there is no flag; 0: as it was
  int64_t host_memory = 0;
  int64_t device_memory = 0;

  bool any() const { return optimizer != "none" || parameters != "none"; }
  bool on_disk() const { return optimizer == "nvme" || parameters == "nvme"; }
};

// Those that say what is offloaded and where, and those about memory.
void AddPlaceFlags(support::FlagTable& flags, OffloadOptions& options);
void AddMemoryFlags(support::FlagTable& flags, OffloadOptions& options);

// Those that were given, for a configuration file; and what it says, for the flags.
void GiveOffload(const support::FlagTable& flags, const OffloadOptions& options,
                 ConfigContext& context);
void SetOffload(const Offload& file, OffloadOptions& options);

// What the flags ask for; `beside`, which a file may have set, has the rest.
Offload OffloadOf(const OffloadOptions& options, const Offload& beside);

// What a stage, 0 to 3, cannot do; and that, or a folder is missing. kInvalidArgument names the
// flags.
absl::Status CheckPlaces(const OffloadOptions& options, int64_t stage);
absl::Status CheckOffloadOptions(const OffloadOptions& options, int64_t stage);

// The same for flags that were given and do nothing. `stages_vary`: several are compared.
absl::Status CheckOffloadEffects(const support::FlagTable& flags, const OffloadOptions& options,
                                 int64_t stage, bool stages_vary);

// That --nvme_path, where it is needed, is a folder that a file can be made in. kInvalidArgument.
absl::Status CheckNvmePath(const OffloadOptions& options);

// Lines of --flag=value that must be the same on every rank.
std::string OffloadLines(const OffloadOptions& options);

// "optimizer cpu, parameters none"; what else is not as by default follows.
std::string OffloadText(const OffloadOptions& options);

// One line for people: what is offloaded where. Of a rank: bytes of the host and of the disk.
// `threads` update what is offloaded, those of all ranks of this process together;
// `during_backward`: units before all gradients are known.
std::string DescribeOffload(const OffloadOptions& options, int64_t host_bytes, int64_t disk_bytes,
                            int64_t threads, bool during_backward);

}  // namespace zero::train
