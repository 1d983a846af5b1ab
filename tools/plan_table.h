// What zero-plan prints.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.h"
#include "examples/train/memory_limits.h"
#include "zero/offload/offload_traffic.h"
#include "zero/plan.h"

namespace zero::tools {

inline constexpr int kPlanStages = 4;

// What --device_memory and --host_memory allow; 0: no limit.
struct PlanLimits {
  int64_t device = 0;
  int64_t host = 0;
  int64_t ranks_per_process = 1;
  bool any() const { return device > 0 || host > 0; }
};

// Bytes of one rank in one stage.
struct PlanColumn {
  std::array<int64_t, kMemoryCategories> memory = {};
  Offload offload;  // in this stage
  int64_t on_disk = 0;
  WireBytes wire;        // of a step
  OffloadTraffic moved;  // of a step
  train::MemoryFit fit;

  int64_t on_device() const;
  int64_t on_host() const;
};

struct PlanTable {
  std::string model;
  int64_t parameters = 0;
  std::string dtype;
  int64_t ranks = 0;
  std::string optimizer;
  std::string master;
  std::string offload;  // in words; empty: nothing is
  std::vector<std::string> notes;
  PlanLimits limits;
  std::string error;  // why no stage is within the limits; empty: one is, or there are none
  std::array<PlanColumn, kPlanStages> columns;
};

// For people, in GB of 10^9 bytes.
std::string TableText(const PlanTable& table);
// One object, in bytes: {"model", "parameters", "dtype", "ranks", "optimizer", "master", "offload",
// "notes", "stages": [{"stage", "memory": {category: bytes}, "on_device", "on_host", "on_disk",
// "wire": {name: bytes}, "moved": {"to_device", "from_device", "disk_read", "disk_written"}}]}.
// Where there are limits also "device_memory", "host_memory", "ranks_per_process", and in each
// stage "fits", "device_lacks", "host_lacks", of which what is negative is left; "error" where none
// fits.
std::string TableJson(const PlanTable& table);

}  // namespace zero::tools
