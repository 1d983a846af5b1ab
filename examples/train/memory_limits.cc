#include "examples/train/memory_limits.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/support/text.h"
#include "examples/train/memory_remedies.h"

namespace zero::train {
namespace {

// Planned bytes of some categories, and which.
class Needed {
 public:
  void Add(MemoryCategory category, int64_t bytes) {
    bytes_ += bytes;
    if (bytes < 5000) return;  // would be 0.00
    parts_.push_back(absl::StrCat(Name(category), " ", support::Megabytes(bytes)));
  }
  int64_t bytes() const { return bytes_; }
  std::string parts() const { return absl::StrJoin(parts_, ", "); }

 private:
  int64_t bytes_ = 0;
  std::vector<std::string> parts_;
};

Needed Offloaded(const PlannedMemory& planned) {
  Needed needed;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    if (IsOffloaded(category)) needed.Add(category, planned.bytes[static_cast<size_t>(c)]);
  }
  return needed;
}

Needed OnDevice(const PlannedMemory& planned) {
  Needed needed;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    if (!IsHost(category)) needed.Add(category, planned.bytes[static_cast<size_t>(c)]);
  }
  return needed;
}

// `host` and `device` bytes of a rank.
MemoryFit FitOfBytes(const OffloadOptions& options, int64_t ranks, int64_t host, int64_t device) {
  MemoryFit fit;
  if (options.host_memory > 0) fit.host_lacks = ranks * host - options.host_memory;
  if (options.device_memory > 0) fit.device_lacks = device - options.device_memory;
  return fit;
}

// With three digits, and not less.
std::string RoundedUp(int64_t bytes) {
  int64_t unit = 1;
  while (bytes / unit >= 1000) unit *= 10;
  return support::SizeText((bytes + unit - 1) / unit * unit);
}

// The stage of those planned that needs the most of one memory, and how much that is.
struct Largest {
  int64_t stage = 0;
  Needed needed;
};

// What a message says of places in all stages.
struct PlannedStages {
  Largest host;  // of a rank
  Largest device;
  int64_t buffers = 0;

  MemoryFit Fit(const OffloadOptions& options, int64_t ranks) const {
    return FitOfBytes(options, ranks, host.needed.bytes(), device.needed.bytes());
  }
};

void KeepLarger(int64_t stage, const Needed& needed, Largest& largest) {
  if (needed.bytes() > largest.needed.bytes()) largest = {stage, needed};
}

absl::StatusOr<PlannedStages> PlanStages(const std::vector<int64_t>& stages,
                                         const OffloadOptions& places, const PlanWith& plan) {
  PlannedStages all;
  for (const int64_t stage : stages) {
    ZERO_ASSIGN_OR_RETURN(const PlannedMemory planned, plan(places, stage));
    KeepLarger(stage, Offloaded(planned), all.host);
    KeepLarger(stage, OnDevice(planned), all.device);
    all.buffers = planned.offload.buffer_count;
  }
  return all;
}

std::string HostText(const OffloadOptions& options, int64_t ranks, const Needed& host,
                     int64_t lacks) {
  return absl::StrCat(
      "--host_memory is ", support::SizeText(options.host_memory), ", but what is offloaded takes ",
      ranks == 1 ? "" : absl::StrCat(ranks, " ranks x "), support::Megabytes(host.bytes()),
      ranks == 1 ? "" : absl::StrCat(" = ", support::Megabytes(ranks * host.bytes())), " (",
      host.parts(), "), ", support::Megabytes(lacks), " too much");
}

std::string DeviceText(const OffloadOptions& options, const Largest& device, int64_t lacks) {
  return absl::StrCat("--device_memory is ", support::SizeText(options.device_memory),
                      ", but each rank takes ", support::Megabytes(device.needed.bytes()),
                      " on its device in stage ", device.stage, " (", device.needed.parts(), "), ",
                      support::Megabytes(lacks), " too much");
}

}  // namespace

int64_t HostCapacity(const OffloadOptions& options, int64_t ranks) {
  return options.host_memory == 0 ? -1 : options.host_memory / ranks;
}

MemoryFit FitOf(const OffloadOptions& options, int64_t ranks, const PlannedMemory& planned) {
  return FitOfBytes(options, ranks, Offloaded(planned).bytes(), OnDevice(planned).bytes());
}

absl::Status CheckLimits(const OffloadOptions& options, const std::vector<int64_t>& stages,
                         int64_t ranks, const PlanWith& plan) {
  ZERO_ASSIGN_OR_RETURN(const PlannedStages now, PlanStages(stages, options, plan));
  const MemoryFit lacks = now.Fit(options, ranks);
  if (lacks.fits()) return absl::OkStatus();
  const bool host = lacks.host_lacks > 0;
  const bool device = lacks.device_lacks > 0;
  const auto with = [&](OffloadOptions other) {
    // Nothing is opened there.
    if (other.on_disk() && other.nvme_path.empty()) other.nvme_path = ".";
    return PlanStages(stages, other, plan);
  };
  PlacesFit fit;
  fit.host = [&](const OffloadOptions& other) {
    const absl::StatusOr<PlannedStages> planned = with(other);
    return planned.ok() && planned->Fit(other, ranks).host_lacks <= 0;
  };
  fit.both = [&](const OffloadOptions& other) {
    const absl::StatusOr<PlannedStages> planned = with(other);
    return planned.ok() && planned->Fit(other, ranks).fits();
  };
  const Largest& most = now.device;
  std::vector<std::string> what;
  std::vector<std::string> limits;
  if (host) {
    what.push_back(HostText(options, ranks, now.host.needed, lacks.host_lacks));
    limits.push_back(absl::StrCat("--host_memory ", RoundedUp(ranks * now.host.needed.bytes())));
  }
  if (device) {
    what.push_back(DeviceText(options, most, lacks.device_lacks));
    limits.push_back(absl::StrCat("--device_memory ", RoundedUp(most.needed.bytes())));
  }
  const int64_t last = stages.back();
  std::vector<std::string> fits = FittingPlaces(options, last, now.buffers, fit);
  std::vector<std::string> less;
  if (device) {
    if (stages.size() == 1 && last < 3) less.push_back("a higher --stage");
    // Nothing that is offloaded is enough: it still helps.
    if (fits.empty()) {
      for (std::string& text : OffloadingMore(options, last, [&](const OffloadOptions& other) {
             const absl::StatusOr<PlannedStages> planned = with(other);
             return planned.ok() ? planned->device.needed.bytes() : most.needed.bytes();
           })) {
        less.push_back(std::move(text));
      }
    }
    less.push_back("more --ranks");
  }
  fits.insert(fits.begin(), absl::StrJoin(limits, " with "));
  std::string text =
      absl::StrCat(absl::StrJoin(what, "; "), "; it fits with ", absl::StrJoin(fits, ", or "));
  if (device) {
    absl::StrAppend(&text, "; less is taken with ", absl::StrJoin(less, ", "),
                    ", or a smaller --micro_batch or --sequence_length");
  }
  return absl::ResourceExhaustedError(text);
}

}  // namespace zero::train
