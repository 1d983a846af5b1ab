// What zero-plan prints.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "device/memory.h"
#include "zero/offload/offload_traffic.h"
#include "zero/plan.h"

namespace zero::tools {

inline constexpr int kPlanStages = 4;

// Bytes of one rank in one stage.
struct PlanColumn {
  std::array<int64_t, kMemoryCategories> memory = {};
  int64_t on_disk = 0;
  WireBytes wire;        // of a step
  OffloadTraffic moved;  // of a step

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
  std::array<PlanColumn, kPlanStages> columns;
};

// For people, in GB of 10^9 bytes.
std::string TableText(const PlanTable& table);
// One object, in bytes: {"model", "parameters", "dtype", "ranks", "optimizer", "master", "offload",
// "stages": [{"stage", "memory": {category: bytes}, "on_device", "on_host", "on_disk",
// "wire": {name: bytes}, "moved": {"to_device", "from_device", "disk_read", "disk_written"}}]}.
std::string TableJson(const PlanTable& table);

}  // namespace zero::tools
