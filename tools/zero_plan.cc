// zero-plan: what training a model will need on each rank, for every stage, before anything runs.
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/config.h"
#include "examples/llama/model.h"
#include "examples/llama/model_description.h"
#include "examples/support/flags.h"
#include "examples/support/program.h"
#include "examples/train/memory_limits.h"
#include "examples/train/offload_options.h"
#include "tools/json_output.h"
#include "tools/kind_of.h"
#include "tools/plan_table.h"
#include "zero/deepspeed_config.h"
#include "zero/plan.h"

namespace zero::tools {
namespace {

constexpr const char* kProgram = "zero-plan";
constexpr const char* kExits =
    "\nexit status: 0: here is the plan, and some stage is within --device_memory and "
    "--host_memory;\n"
    "  1: none is, or a file is wrong; 2: wrong usage\n";

struct Options {
  std::string model;
  std::string config;
  int64_t ranks = 8;
  std::string dtype = "bf16";
  std::string accumulation_dtype = "fp32";
  int64_t accumulation = 1;
  int64_t micro_batch = 1;
  int64_t sequence_length = 0;
  int64_t reduce_bucket_size = Config().reduce_bucket_size;
  int64_t prefetch = Config().prefetch;
  std::string optimizer = Name(Config().optimizer);
  std::string master = Name(Config().master);
  train::OffloadOptions offload;
  int64_t ranks_per_process = 1;
  bool json = false;
};

void AddFlags(support::FlagTable& flags, Options& options) {
  flags.AddText("model", &options.model, "PATH", "config.json of a LLaMA model, or its folder");
  flags.AddCount("ranks", &options.ranks, 1, 1 << 20, "ranks, usually one for each GPU");
  flags.AddText("config", &options.config, "FILE",
                "DeepSpeed's JSON, whose stage does not matter; flags add to it");
  flags.AddChoice("dtype", &options.dtype, {"fp32", "bf16", "fp16"},
                  "of weights, gradients and activations");
  flags.AddChoice("accumulation_dtype", &options.accumulation_dtype, {"fp32", "bf16", "fp16"},
                  "of stored gradients");
  flags.AddCount("accumulation", &options.accumulation, 1, 1 << 20, "micro-batches of a step");
  flags.AddCount("micro_batch", &options.micro_batch, 1, 1 << 20,
                 "samples of a rank's micro-batch");
  flags.AddCount("sequence_length", &options.sequence_length, 0, 1 << 24,
                 "tokens of a sample; 0: the model's max_position_embeddings");
  flags.AddCount("reduce_bucket_size", &options.reduce_bucket_size, 1, int64_t{1} << 60,
                 "elements reduced in one call");
  flags.AddCount("prefetch", &options.prefetch, 0, 1 << 20, "units gathered ahead in stage 3");
  flags.AddChoice("optimizer", &options.optimizer, {"adamw", "adam", "sgd", "lion"},
                  "sgd without momentum");
  flags.AddChoice("master", &options.master, {"fp32", "split", "none"},
                  "kept of 16-bit weights: fp32, the low 16 bits of fp32, nothing");
  train::AddPlaceFlags(flags, options.offload);
  train::AddMemoryFlags(flags, options.offload);
  flags.AddCount("ranks_per_process", &options.ranks_per_process, 1, 1 << 20,
                 "ranks that share --host_memory");
  flags.AddSwitch("json", &options.json,
                  "print one JSON object, in bytes; with \"error\" if it fails");
}

// What the table is made for, apart from the stage.
Config ConfigOf(const Options& options) {
  Config config;
  config.optimizer = KindOf<OptimizerKind>(options.optimizer);
  config.master = KindOf<MasterKind>(options.master);
  if (config.master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
  config.accumulation = ParseDType(options.accumulation_dtype).value_or(DType::kF32);
  config.reduce_bucket_size = options.reduce_bucket_size;
  config.prefetch = static_cast<int>(options.prefetch);
  config.offload = train::OffloadOf(options.offload, config.offload);
  // Nothing is opened there.
  if (options.offload.on_disk() && config.offload.nvme_path.empty()) config.offload.nvme_path = ".";
  return config;
}

// The same of the file that --config names; what else it says goes to `options`.
absl::StatusOr<Config> ReadConfigFile(const support::FlagTable& flags,
                                      const llama::LlamaConfig& model, Options& options) {
  ConfigContext context;
  context.world_size = options.ranks;
  context.world_size_source = "--ranks";
  context.hidden_size = model.hidden_size;
  context.total_steps = int64_t{1} << 40;  // longer than any warm-up: no byte depends on it
  const auto give = [&](const char* flag, const char* path, const auto& value) {
    if (flags.Given(flag)) context.given[path] = {absl::StrCat("--", flag), value};
  };
  give("dtype", "dtype", options.dtype);
  give("accumulation_dtype", "data_types.grad_accum_dtype", options.accumulation_dtype);
  give("micro_batch", "train_micro_batch_size_per_gpu", options.micro_batch);
  give("accumulation", "gradient_accumulation_steps", options.accumulation);
  give("reduce_bucket_size", "zero_optimization.reduce_bucket_size", options.reduce_bucket_size);
  give("prefetch", "prefetch", options.prefetch);
  give("optimizer", "optimizer", options.optimizer);
  give("master", "master", options.master);
  train::GiveOffload(flags, options.offload, context);
  ZERO_ASSIGN_OR_RETURN(const DeepSpeedConfig file, ReadDeepSpeedConfig(options.config, context));
  options.dtype = Name(file.dtype);
  options.micro_batch = file.micro_batch_size;
  options.accumulation = file.accumulation_steps;
  train::SetOffload(file.config.offload, options.offload);
  Config config = file.config;
  config.offload = train::OffloadOf(options.offload, config.offload);
  return config;
}

absl::StatusOr<PlanColumn> PlanStage(const Options& options, const llama::LlamaConfig& model,
                                     Config config, int stage) {
  ZERO_ASSIGN_OR_RETURN(const DType dtype, ParseDType(options.dtype));
  config.stage = stage;
  config.offload = OffloadOfStage(config.offload, stage);
  config.groups.assign(2, {});  // those that DescribeModel names
  ZERO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(config, llama::DescribeModel(model, dtype),
                                                  static_cast<int>(options.ranks)));
  llama::LlamaModel::Options activations;
  activations.micro_batch = options.micro_batch;
  activations.sequence_length =
      options.sequence_length > 0 ? options.sequence_length : model.max_position_embeddings;
  activations.dtype = dtype;
  PlanColumn column;
  column.offload = plan.config.offload;
  column.memory = plan.bytes;
  column.memory[static_cast<size_t>(MemoryCategory::kActivations)] +=
      llama::LlamaModel::ActivationBytes(model, activations);
  column.on_disk = plan.offload.disk_bytes;
  column.wire = plan.step_wire(options.accumulation);
  column.moved = plan.step_offload(options.accumulation);
  return column;
}

// The plan of a stage with other places than those of the flags and of the file.
absl::StatusOr<train::PlannedMemory> PlanPlaces(const Options& options,
                                                const llama::LlamaConfig& model, Config config,
                                                int stage, const train::OffloadOptions& places) {
  config.offload = train::OffloadOf(places, config.offload);
  // Nothing is opened there.
  if (places.on_disk() && places.nvme_path.empty()) config.offload.nvme_path = ".";
  ZERO_ASSIGN_OR_RETURN(const PlanColumn column, PlanStage(options, model, config, stage));
  return train::PlannedMemory{column.memory, column.offload};
}

// Prints the table. kResourceExhausted: no stage is within the limits.
absl::Status PrintPlan(const Options& options, const llama::LlamaConfig& model,
                       const Config& config) {
  const train::OffloadOptions& offload = options.offload;
  PlanTable table;
  table.model = options.model;
  table.parameters = llama::ParameterCount(model);
  table.dtype = options.dtype;
  table.ranks = options.ranks;
  table.optimizer = Name(config.optimizer);
  table.master = Name(config.master);
  if (offload.any()) table.offload = train::OffloadText(offload);
  if (offload.on_disk() && offload.nvme_path.empty()) {
    table.notes.push_back(
        "zero-train also needs --nvme_path, a folder on a disk with room for the files of its "
        "ranks");
  }
  table.limits = {offload.device_memory, offload.host_memory, options.ranks_per_process};
  bool fits = false;
  for (int stage = 0; stage < kPlanStages; ++stage) {
    PlanColumn& column = table.columns[stage];
    ZERO_ASSIGN_OR_RETURN(column, PlanStage(options, model, config, stage));
    column.fit = train::FitOf(offload, options.ranks_per_process, {column.memory, column.offload});
    fits |= column.fit.fits();
  }
  absl::Status status;
  if (!fits) {
    // What takes the least.
    constexpr int kLast = kPlanStages - 1;
    status = train::CheckLimits(offload, {kLast}, options.ranks_per_process,
                                [&](const train::OffloadOptions& places, int64_t stage) {
                                  return PlanPlaces(options, model, config, static_cast<int>(stage),
                                                    places);
                                });
    status = absl::Status(status.code(), absl::StrCat("no stage fits; of stage ", kLast, ": ",
                                                      std::string(status.message())));
    table.error = std::string(status.message());
  }
  std::cout << (options.json ? TableJson(table) : TableText(table));
  return status;
}

// What one flag's range cannot say.
absl::Status CheckOptions(const support::FlagTable& flags, const Options& options) {
  if (options.model.empty()) {
    return absl::InvalidArgumentError("--model is missing: give a config.json or its folder");
  }
  if (options.config.empty() && options.accumulation_dtype != "fp32" &&
      options.accumulation_dtype != options.dtype) {
    const std::string other = options.dtype == "fp32" ? "" : " or " + options.dtype;
    return absl::InvalidArgumentError(absl::StrCat("--accumulation_dtype is '",
                                                   options.accumulation_dtype, "'; with --dtype ",
                                                   options.dtype, " it must be fp32", other));
  }
  if (flags.Given("ranks_per_process") && options.offload.host_memory == 0) {
    return absl::InvalidArgumentError(
        "--ranks_per_process is given, but has no effect: it belongs to --host_memory");
  }
  if (options.ranks_per_process > options.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks_per_process is ", options.ranks_per_process,
                     "; it must be at most --ranks, ", options.ranks));
  }
  // The file may offload, and says itself what is wrong.
  if (!options.config.empty()) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(train::CheckOffloadEffects(flags, options.offload, 3, /*stages_vary=*/true));
  return train::CheckPlaces(options.offload, 3);
}

int Main(const std::vector<std::string>& arguments) {
  const auto fail = [json = AsksForJson(arguments)](const absl::Status& status, int exit_status) {
    if (json) PrintJsonError(status);
    return support::Fail(kProgram, status, exit_status);
  };
  Options options;
  support::FlagTable flags;
  AddFlags(flags, options);
  absl::Status usage = flags.Parse(arguments);
  if (usage.ok() && flags.help()) {
    std::cout << "usage: " << kProgram << " --model PATH [flags]\n" << flags.Help() << kExits;
    return 0;
  }
  if (usage.ok()) usage = CheckOptions(flags, options);
  if (!usage.ok()) return fail(usage, support::kExitUsage);
  const absl::StatusOr<llama::LlamaConfig> model = llama::ReadConfig(options.model);
  if (!model.ok()) {
    return fail(
        absl::Status(model.status().code(), absl::StrCat("--model: ", model.status().message())),
        support::kExitFailure);
  }
  if (options.sequence_length > model->max_position_embeddings) {
    return fail(absl::InvalidArgumentError(absl::StrCat(
                    "--sequence_length is ", options.sequence_length,
                    ": the model's max_position_embeddings is ", model->max_position_embeddings)),
                support::kExitUsage);
  }
  absl::StatusOr<Config> config = ConfigOf(options);
  if (!options.config.empty()) config = ReadConfigFile(flags, *model, options);
  if (!config.ok()) {
    if (options.json) PrintJsonError(config.status());
    return support::FailLines(kProgram, config.status(), support::kExitFailure);
  }
  const absl::Status status = PrintPlan(options, *model, *config);
  if (status.ok()) return 0;
  // The table has been printed then, with what is wrong.
  if (absl::IsResourceExhausted(status)) {
    return support::Fail(kProgram, status, support::kExitFailure);
  }
  return fail(status, support::kExitFailure);
}

}  // namespace
}  // namespace zero::tools

int main(int count, char** values) {
  return zero::tools::Main(std::vector<std::string>(values + 1, values + count));
}
