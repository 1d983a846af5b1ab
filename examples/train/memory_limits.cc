#include "examples/train/memory_limits.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/support/text.h"

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

// With three digits, and not less.
std::string RoundedUp(int64_t bytes) {
  int64_t unit = 1;
  while (bytes / unit >= 1000) unit *= 10;
  return support::SizeText((bytes + unit - 1) / unit * unit);
}

// Flags that fit, where others do not.
class Remedies {
 public:
  Remedies(const OffloadOptions& options, int64_t ranks, const PlanWith& plan)
      : options_(options), ranks_(ranks), plan_(plan) {}

  // `change` makes of the flags those that `text` names.
  template <class Change>
  void Try(const std::string& text, const Change& change) {
    OffloadOptions other = options_;
    change(other);
    if (Fits(other)) found_.push_back(absl::StrCat(text, NvmePath(other)));
  }

  // The largest share of each slice, in hundredths, below that of now.
  void TryRatios() {
    int fits = 0;
    auto too_much = static_cast<int>(std::ceil(options_.ratio * 100));
    OffloadOptions other = options_;
    while (too_much - fits > 1) {
      const int middle = (fits + too_much) / 2;
      other.ratio = middle / 100.0;
      (Fits(other) ? fits : too_much) = middle;
    }
    if (fits > 0) found_.push_back(absl::StrCat("--offload_ratio ", fits / 100.0));
  }

  void Add(const std::string& text) { found_.push_back(text); }
  std::string text() const { return absl::StrJoin(found_, ", or "); }

 private:
  bool Fits(OffloadOptions other) const {
    // Nothing is opened there.
    if (other.on_disk() && other.nvme_path.empty()) other.nvme_path = ".";
    const absl::StatusOr<PlannedMemory> planned = plan_(other);
    return planned.ok() && FitOf(other, ranks_, *planned).fits();
  }
  std::string NvmePath(const OffloadOptions& other) const {
    return other.on_disk() && options_.nvme_path.empty() ? " with --nvme_path" : "";
  }

  const OffloadOptions& options_;
  const int64_t ranks_;
  const PlanWith& plan_;
  std::vector<std::string> found_;
};

absl::Status HostLacks(const OffloadOptions& options, int64_t ranks, const PlannedMemory& planned,
                       const PlanWith& plan) {
  const Needed host = Offloaded(planned);
  const Offload& offload = planned.offload;
  Remedies fits(options, ranks, plan);
  fits.Add(absl::StrCat("--host_memory ", RoundedUp(ranks * host.bytes())));
  const auto optimizer = [](OffloadOptions& other) { other.optimizer = "nvme"; };
  const auto parameters = [](OffloadOptions& other) { other.parameters = "nvme"; };
  const bool states = offload.optimizer == Place::kHost;
  const bool weights = offload.parameters == Place::kHost;
  if (states) fits.Try("--offload_optimizer nvme", optimizer);
  if (weights) fits.Try("--offload_param nvme", parameters);
  if (states && weights) {
    fits.Try("--offload_optimizer nvme --offload_param nvme", [&](OffloadOptions& other) {
      optimizer(other);
      parameters(other);
    });
  }
  fits.TryRatios();
  const bool buffers = offload.buffer_count > 2 &&
                       (offload.optimizer == Place::kNvme || offload.parameters != Place::kHost);
  return absl::ResourceExhaustedError(absl::StrCat(
      "--host_memory is ", support::SizeText(options.host_memory), ", but what is offloaded takes ",
      ranks == 1 ? "" : absl::StrCat(ranks, " ranks x "), support::Megabytes(host.bytes()),
      ranks == 1 ? "" : absl::StrCat(" = ", support::Megabytes(ranks * host.bytes())), " (",
      host.parts(), "), ", support::Megabytes(ranks * host.bytes() - options.host_memory),
      " too much; it fits with ", fits.text(),
      buffers ? absl::StrCat("; less is taken with fewer buffers than ", offload.buffer_count,
                             " (offload_optimizer.buffer_count of --config)")
              : ""));
}

absl::Status DeviceLacks(const OffloadOptions& options, int64_t stage, int64_t ranks,
                         const PlannedMemory& planned, const PlanWith& plan) {
  const Needed device = OnDevice(planned);
  const Offload& offload = planned.offload;
  Remedies fits(options, ranks, plan);
  fits.Add(absl::StrCat("--device_memory ", RoundedUp(device.bytes())));
  const auto optimizer = [](OffloadOptions& other) { other.optimizer = "cpu"; };
  const auto parameters = [](OffloadOptions& other) { other.parameters = "cpu"; };
  const bool states = stage > 0 && offload.optimizer == Place::kDevice;
  const bool weights = stage == 3 && offload.parameters == Place::kDevice;
  if (states) fits.Try("--offload_optimizer cpu", optimizer);
  if (weights && !states) fits.Try("--offload_param cpu", parameters);
  if (weights && states) {
    fits.Try("--offload_optimizer cpu --offload_param cpu", [&](OffloadOptions& other) {
      optimizer(other);
      parameters(other);
    });
  }
  if (offload.optimizer != Place::kDevice && offload.ratio < 1) {
    fits.Try("--offload_ratio 1", [](OffloadOptions& other) { other.ratio = 1; });
  }
  if (offload.optimizer != Place::kDevice && !offload.gradients && stage >= 2) {
    fits.Try("--offload_gradients", [](OffloadOptions& other) { other.gradients = true; });
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "--device_memory is ", support::SizeText(options.device_memory), ", but each rank takes ",
      support::Megabytes(device.bytes()), " on its device in stage ", stage, " (", device.parts(),
      "), ", support::Megabytes(device.bytes() - options.device_memory), " too much; it fits with ",
      fits.text(), "; less is taken with ", stage < 3 ? "a higher --stage, " : "",
      "more --ranks, or a smaller --micro_batch or --sequence_length"));
}

}  // namespace

int64_t HostCapacity(const OffloadOptions& options, int64_t ranks) {
  return options.host_memory == 0 ? -1 : options.host_memory / ranks;
}

MemoryFit FitOf(const OffloadOptions& options, int64_t ranks, const PlannedMemory& planned) {
  MemoryFit fit;
  if (options.host_memory > 0) {
    fit.host_lacks = ranks * Offloaded(planned).bytes() - options.host_memory;
  }
  if (options.device_memory > 0) {
    fit.device_lacks = OnDevice(planned).bytes() - options.device_memory;
  }
  return fit;
}

absl::Status CheckLimits(const OffloadOptions& options, int64_t stage, int64_t ranks,
                         const PlanWith& plan) {
  ZERO_ASSIGN_OR_RETURN(const PlannedMemory planned, plan(options));
  const MemoryFit fit = FitOf(options, ranks, planned);
  if (fit.host_lacks > 0) return HostLacks(options, ranks, planned, plan);
  if (fit.device_lacks > 0) return DeviceLacks(options, stage, ranks, planned, plan);
  return absl::OkStatus();
}

}  // namespace zero::train
