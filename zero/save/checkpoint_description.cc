#include "zero/save/checkpoint_description.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "io/checksummed_file.h"
#include "zero/agreement.h"

namespace zero {
namespace {

std::string StemOf(int rank, int ranks) {
  return absl::StrFormat("rank-%05d-of-%05d", rank, ranks);
}

}  // namespace

std::string CheckpointFileName(int rank, int ranks) {
  return absl::StrCat(StemOf(rank, ranks), ".safetensors");
}

std::string ChecksumsFileName(int rank, int ranks) {
  return absl::StrCat(StemOf(rank, ranks), ".checksums");
}

std::string FormatChecksums(int64_t bytes, const std::vector<uint32_t>& checksums) {
  std::string text = absl::StrCat(bytes, "\n");
  for (const uint32_t checksum : checksums) absl::StrAppendFormat(&text, "%08x", checksum);
  return text;
}

absl::Status ParseChecksums(const std::string& path, const std::string& text,
                            CheckpointFile& file) {
  const size_t line = text.find('\n');
  const auto wrong = [&] {
    return absl::DataLossError(absl::StrCat(path, ": not what a rank wrote about its file"));
  };
  if (line == std::string::npos || !absl::SimpleAtoi(text.substr(0, line), &file.bytes) ||
      file.bytes < 0) {
    return wrong();
  }
  const int64_t blocks = (file.bytes + kChecksumBlock - 1) / kChecksumBlock;
  if (static_cast<int64_t>(text.size() - line - 1) != 8 * blocks) return wrong();
  file.checksums.clear();
  for (size_t at = line + 1; at < text.size(); at += 8) {
    uint32_t checksum = 0;
    if (!absl::SimpleHexAtoi(text.substr(at, 8), &checksum)) return wrong();
    file.checksums.push_back(checksum);
  }
  return absl::OkStatus();
}

std::vector<CheckpointParameter> CheckpointParameters(const Plan& plan, const Model& model) {
  std::vector<CheckpointParameter> parameters;
  for (size_t u = 0; u < model.units.size(); ++u) {
    const UnitLayout& layout = plan.layout.units[u];
    for (size_t p = 0; p < model.units[u].parameters.size(); ++p) {
      const Parameter& parameter = model.units[u].parameters[p];
      const int s = layout.parameters[p].segment;
      const Segment& segment = layout.segments[s];
      CheckpointParameter described;
      described.name = parameter.name;
      described.unit = model.units[u].name;
      described.shape = parameter.shape;
      described.dtype = parameter.dtype;
      described.trainable = parameter.trainable;
      described.aliases = parameter.aliases;
      if (!parameter.trainable) {
        described.states[kWeightState] = parameter.dtype;
      } else {
        described.states[kMasterState] =
            MasterBytes(plan.config, segment) > 0 ? DType::kF32 : parameter.dtype;
        const int moments = segment.elements > 0 ? plan.moments : 0;
        if (moments >= 1) described.states[kMoment1State] = DType::kF32;
        if (moments >= 2) described.states[kMoment2State] = DType::kF32;
      }
      parameters.push_back(std::move(described));
    }
  }
  return parameters;
}

CheckpointManifest DescribeCheckpoint(const Plan& plan, const Model& model) {
  CheckpointManifest manifest;
  manifest.rounding_seed = plan.config.rounding_seed;
  manifest.world_size = plan.world_size;
  manifest.stage = plan.config.stage;
  manifest.optimizer = Name(plan.config.optimizer);
  manifest.weight_rounding = Name(plan.config.weight_rounding);
  manifest.configuration = AgreementLines(plan.config, Model());
  manifest.parameters = CheckpointParameters(plan, model);
  for (int rank = 0; rank < plan.world_size; ++rank) {
    CheckpointFile file;
    file.name = CheckpointFileName(rank, plan.world_size);
    int64_t parameter = 0;
    for (const UnitLayout& unit : plan.layout.units) {
      for (const Run& run : unit.parameters) {
        const int64_t slice = unit.segments[run.segment].slice;
        const int64_t from = std::max(run.first, rank * slice);
        const int64_t to = std::min(run.first + run.count, (rank + 1) * slice);
        if (from < to) file.pieces.push_back({parameter, from - run.first, to - from});
        ++parameter;
      }
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

CheckpointCounts CountsOf(int64_t steps, const StepState& state) {
  CheckpointCounts counts;
  counts.steps = steps;
  counts.applied = state.applied;
  counts.last_applied_step = state.last_applied_step;
  counts.skipped = state.skipped;
  counts.consecutive_skips = state.consecutive_skips;
  counts.loss_scale = state.loss_scale.scale;
  counts.hysteresis = state.loss_scale.hysteresis;
  counts.iterations = state.loss_scale.iterations;
  counts.last_overflow = state.loss_scale.last_overflow;
  counts.clean = state.loss_scale.clean;
  return counts;
}

StepState StateOf(const CheckpointCounts& counts) {
  StepState state;
  state.applied = counts.applied;
  state.last_applied_step = counts.last_applied_step;
  state.skipped = counts.skipped;
  state.consecutive_skips = counts.consecutive_skips;
  state.loss_scale.scale = counts.loss_scale;
  state.loss_scale.hysteresis = static_cast<int32_t>(counts.hysteresis);
  state.loss_scale.iterations = counts.iterations;
  state.loss_scale.last_overflow = counts.last_overflow;
  state.loss_scale.clean = counts.clean;
  return state;
}

}  // namespace zero
