#include "examples/train/processes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collectives/gloo_group.h"
#include "collectives/nccl_group.h"
#include "device/dtype.h"
#include "device/status.h"
#include "examples/train/checkpoint_options.h"
#include "examples/train/rank_error.h"
#include "zero/deepspeed_keys.h"

namespace zero::train {

absl::StatusOr<std::optional<Launch>> ReadProcesses() {
  absl::StatusOr<std::optional<Launch>> launch = ReadLaunch();
  if (launch.ok() && launch->has_value() && (*launch)->size == 1) launch->reset();
  return launch;
}

namespace {

// "mpirun started 2 processes", after "but".
std::string Started(const Launch& launch) {
  if (launch.launcher.empty()) return absl::StrCat("WORLD_SIZE is ", launch.size);
  return absl::StrCat(launch.launcher, " started ", launch.size, " processes");
}

}  // namespace

absl::Status CheckProcesses(const Options& options, const Launch& launch) {
  if (options.ranks != launch.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks is ", options.ranks, ", but ", Started(launch), "; leave it out"));
  }
  if (options.compare_stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare_stages compares ranks that are threads, but ", Started(launch),
                     "; start one process, with --ranks ", launch.size));
  }
  return absl::OkStatus();
}

absl::Status CheckReduction(const Options& options, const std::optional<Launch>& launch) {
  if (options.reduction != "native") return absl::OkStatus();
  if (options.device == "cuda" && launch.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--reduction is 'native', but there is no NCCL where ranks ",
      options.device == "cuda" ? "are threads of one process; start processes with a launcher"
                               : "compute on hosts; give --device cuda to processes of a launcher",
      ", or use ordered or auto"));
}

int64_t CudaDeviceOf(const Options& options, const std::optional<Launch>& launch) {
  if (options.cuda_device >= 0) return options.cuda_device;
  return launch.has_value() ? std::max(launch->local_rank, 0) : 0;
}

namespace {

// A line for each key that a file may have in force, with its path; before the flags, which have
// been given the values of the file.
std::string LinesOf(const std::optional<DeepSpeedConfig>& file) {
  std::string lines = absl::StrCat("--config: ", file.has_value() ? "given" : "not given");
  if (!file.has_value()) return lines;
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    if (key.kind == KeyKind::kSection) continue;
    const auto found = file->values.find(key.path);
    absl::StrAppend(&lines, "\n--config: ", key.path, " is ",
                    found == file->values.end() ? "not in force" : found->second);
  }
  return lines;
}

// A line for each key, so that a difference names it.
std::string LinesOf(const llama::LlamaConfig& model, const std::string& dtype) {
  const absl::StatusOr<DType> type = ParseDType(dtype);
  const std::string json = llama::ToJson(model, type.value_or(DType::kF32)).value_or("");
  std::string lines;
  for (absl::string_view line : absl::StrSplit(json, '\n')) {
    line = absl::StripSuffix(absl::StripAsciiWhitespace(line), ",");
    absl::StrAppend(&lines, "\n--model: ", line);
  }
  return lines;
}

std::string TextOf(const llama::TokenDataset& data) {
  return absl::StrCat(data.Summary(), " with hash ", absl::Hex(data.hash()));
}

}  // namespace

std::string ConfigurationOf(const Options& o, const llama::LlamaConfig& model,
                            const SavedWeights* weights, const llama::TokenDataset& data,
                            const llama::TokenDataset* evaluation) {
  return absl::StrCat(
      LinesOf(o.file), "\n--ranks=", o.ranks, "\n--stage=", o.stage, "\n--dtype=", o.dtype,
      "\n--loss_scale=", o.loss_scale, "\n--loss_scaling=", o.loss_scaling,
      "\n--accumulation_dtype=", o.accumulation_dtype, "\n--steps=", o.steps,
      "\n--micro_batch=", o.micro_batch, "\n--accumulation=", o.accumulation,
      "\n--sequence_length=", o.sequence_length, "\n--learning_rate=", o.learning_rate,
      "\n--warmup_steps=", o.warmup_steps, "\n--schedule=", o.schedule, "\n--cycles=", o.cycles,
      "\n--optimizer=", o.optimizer, "\n--momentum=", o.momentum, "\n--master=", o.master,
      "\n--weight_decay=", o.weight_decay, "\n--no_decay=", o.no_decay, "\n--freeze=", o.freeze,
      "\n--max_skips=", o.max_skips, "\n--check_overflow=", o.check_overflow,
      "\n--check_gradients=", o.check_gradients, "\n--beta1=", o.beta1, "\n--beta2=", o.beta2,
      "\n--epsilon=", o.epsilon, "\n--clip=", o.clip, "\n--seed=", o.seed,
      "\n--shuffle=", o.shuffle, "\n--device=", o.device,
      "\n--reduce_bucket_size=", o.reduce_bucket_size, "\n--prefetch=", o.prefetch,
      "\n--reduction=", o.reduction, OffloadLines(o.offload), "\n--output=", o.output,
      "\n--max_shard_size=", o.max_shard_size, "\n--output_dtype=", o.output_dtype,
      "\n--metrics=", o.metrics, "\n--evaluate_every=", o.evaluate_every,
      "\n--evaluate_batches=", o.evaluate_batches, CheckpointLines(o), "\n--data: ", TextOf(data),
      "\n--evaluate_data: ", evaluation == nullptr ? "none" : TextOf(*evaluation),
      "\nweights of --model: ", weights == nullptr ? "random" : weights->Summary(),
      LinesOf(model, o.dtype));
}

void Decline(const Launch& launch, const absl::Status& why) {
  RendezvousOptions options = OptionsOf(launch);
  options.failure = why;
  (void)Rendezvous::Create(options);
}

absl::StatusOr<Processes> Processes::Join(const Launch& launch, const std::string& configuration,
                                          const DeviceChoice& device, absl::Duration deadline) {
  RendezvousOptions options = OptionsOf(launch);
  options.configuration = configuration;
  options.deadline = deadline;
  Processes processes;
  ZERO_ASSIGN_OR_RETURN(processes.rendezvous_, Rendezvous::Create(options));
  if (device.kind == "cuda") {
    ZERO_ASSIGN_OR_RETURN(
        processes.cuda_device_,
        CudaDevice::Create({.id = static_cast<int>(device.cuda_device), .capacity = -1}));
    ZERO_ASSIGN_OR_RETURN(
        processes.group_,
        CreateNcclGroup(processes.cuda_device_.get(), processes.rendezvous_.get(), {deadline}));
    return processes;
  }
  ZERO_ASSIGN_OR_RETURN(processes.group_,
                        GlooGroup::Create({processes.rendezvous_.get(), deadline}));
  return processes;
}

absl::Status Processes::End(const absl::Status& status) {
  if (status.ok()) return rendezvous_->Close();
  const absl::Status named = OfRank(rendezvous_->rank(), status);
  group_->Abort(named);
  return named;
}

}  // namespace zero::train
