#include "examples/train/config_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/dtype.h"
#include "device/status.h"

namespace zero::train {
namespace {

constexpr int64_t kMostInAPass = 1 << 20;  // as of --micro_batch and --accumulation

// Where the number of ranks came from.
std::string RanksSource(const std::optional<Launch>& launch) {
  if (!launch.has_value()) return "--ranks";
  if (launch->launcher == "torchrun") return "WORLD_SIZE of torchrun";
  return absl::StrCat("the processes of ", launch->launcher);
}

ConfigContext ContextOf(const support::FlagTable& flags, const llama::LlamaConfig& model,
                        const std::optional<Launch>& launch, const Options& options) {
  ConfigContext context;
  context.world_size = options.ranks;
  context.world_size_source = RanksSource(launch);
  context.hidden_size = model.hidden_size;
  context.total_steps = options.steps;
  const auto give = [&](const char* flag, const char* path, const auto& value) {
    if (flags.Given(flag)) context.given[path] = {absl::StrCat("--", flag), value};
  };
  give("stage", "zero_optimization.stage", options.stage);
  give("dtype", "dtype", options.dtype);
  give("accumulation_dtype", "data_types.grad_accum_dtype", options.accumulation_dtype);
  give("micro_batch", "train_micro_batch_size_per_gpu", options.micro_batch);
  give("accumulation", "gradient_accumulation_steps", options.accumulation);
  give("optimizer", "optimizer", options.optimizer);
  give("learning_rate", "optimizer.params.lr", options.learning_rate);
  give("weight_decay", "optimizer.params.weight_decay", options.weight_decay);
  give("beta1", "optimizer.params.beta1", options.beta1);
  give("beta2", "optimizer.params.beta2", options.beta2);
  give("epsilon", "optimizer.params.eps", options.epsilon);
  give("momentum", "optimizer.params.momentum", options.momentum);
  give("master", "master", options.master);
  give("loss_scale", "fp16.loss_scale", options.loss_scale);
  give("schedule", "scheduler.type", options.schedule);
  give("warmup_steps", "scheduler.params.warmup_num_steps", options.warmup_steps);
  give("clip", "gradient_clipping", options.clip);
  give("check_overflow", "bf16.check_grad_overflow", options.check_overflow);
  give("reduce_bucket_size", "zero_optimization.reduce_bucket_size", options.reduce_bucket_size);
  give("prefetch", "prefetch", options.prefetch);
  give("log_every", "steps_per_print", options.log_every);
  GiveOffload(flags, options.offload, context);
  return context;
}

void SetOptions(const DeepSpeedConfig& file, Options& options) {
  const Config& config = file.config;
  options.stage = config.stage;
  options.dtype = Name(file.dtype);
  options.accumulation_dtype = Name(config.accumulation);
  options.micro_batch = file.micro_batch_size;
  options.accumulation = file.accumulation_steps;
  options.optimizer = Name(config.optimizer);
  options.learning_rate = config.learning_rate;
  options.weight_decay = config.groups[0].weight_decay;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.epsilon = config.epsilon;
  options.momentum = config.momentum;
  options.master = Name(config.master);
  options.clip = config.clip_norm;
  options.check_overflow = config.check_overflow;
  options.reduce_bucket_size = config.reduce_bucket_size;
  options.prefetch = config.prefetch;
  options.log_every = file.steps_per_print;
  SetOffload(config.offload, options.offload);
}

}  // namespace

absl::Status ReadConfigFile(const support::FlagTable& flags, const llama::LlamaConfig& model,
                            const std::optional<Launch>& launch, Options& options) {
  ZERO_ASSIGN_OR_RETURN(
      DeepSpeedConfig file,
      ReadDeepSpeedConfig(options.config, ContextOf(flags, model, launch, options)));
  for (const auto& [key, value] :
       {std::pair("train_micro_batch_size_per_gpu", file.micro_batch_size),
        std::pair("gradient_accumulation_steps", file.accumulation_steps)}) {
    if (value <= kMostInAPass) continue;
    return absl::InvalidArgumentError(absl::StrCat(options.config, ": ", key, " is ", value,
                                                   "; it must be at most ", kMostInAPass));
  }
  SetOptions(file, options);
  if (!flags.Given("max_skips")) options.max_skips = file.config.max_consecutive_skips;
  options.file = std::move(file);
  return absl::OkStatus();
}

std::string FlagsBeside(const Options& options) {
  const Config& file = options.file->config;
  const Options defaults;
  std::string text;
  const auto add = [&](const char* flag, bool beside, const auto& value) {
    if (beside) absl::StrAppend(&text, text.empty() ? "" : " ", "--", flag, " ", value);
  };
  const auto add_names = [&](const char* flag, const std::string& names) {
    add(flag, !names.empty(), absl::StrCat("'", names, "'"));
  };
  if (!file.schedule) {
    add("schedule", options.schedule != defaults.schedule, options.schedule);
    add("cycles", options.cycles != defaults.cycles, options.cycles);
    add("warmup_steps", options.warmup_steps > 0, options.warmup_steps);
  }
  add("loss_scale", options.loss_scale > 0 && options.dtype != "fp16",
      support::ShortestNumber(options.loss_scale));
  add("master", options.master == "split", options.master);
  add("prefetch", options.prefetch > 0 && options.prefetch != defaults.prefetch, options.prefetch);
  add("offload_gradients", !options.offload.gradients, "false");
  add_names("no_decay", options.no_decay);
  add_names("freeze", options.freeze);
  add("max_skips", options.max_skips != file.max_consecutive_skips, options.max_skips);
  add("check_overflow", !options.check_overflow && options.dtype != "bf16", "false");
  add("check_gradients", options.check_gradients, "true");
  add("reduction", options.reduction != defaults.reduction, options.reduction);
  add("seed", options.seed != defaults.seed, options.seed);
  add("shuffle", !options.shuffle, "false");
  return text;
}

std::string DescribeConfigFile(const Options& options) {
  if (!options.file.has_value()) return "";
  std::string text =
      absl::StrCat("config      ", options.config, ", in force:\n", options.file->resolved, "\n");
  const std::string beside = FlagsBeside(options);
  if (!beside.empty()) absl::StrAppend(&text, "and flags   ", beside, "\n");
  for (const std::string& note : options.file->notes)
    absl::StrAppend(&text, "note        ", note, "\n");
  return text;
}

}  // namespace zero::train
