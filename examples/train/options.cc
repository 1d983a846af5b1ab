#include "examples/train/options.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/dtype.h"
#include "device/status.h"
#include "examples/llama/model_description.h"
#include "examples/train/checkpoint_options.h"
#include "examples/train/groups.h"
#include "examples/train/product_threads.h"
#include "examples/train/rank_device.h"
#include "zero/schedules.h"

namespace zero::train {
namespace {

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
constexpr int64_t kMost = 1'000'000'000;
constexpr double kLargestScale = 0x1p100;

// The flags allow the names of the enumerators only.
OptimizerKind OptimizerOf(const std::string& name) {
  if (name == "adam") return OptimizerKind::kAdam;
  if (name == "sgd") return OptimizerKind::kSgd;
  return name == "lion" ? OptimizerKind::kLion : OptimizerKind::kAdamW;
}

MasterKind MasterOf(const std::string& name) {
  if (name == "split") return MasterKind::kSplit;
  return name == "none" ? MasterKind::kNone : MasterKind::kF32;
}

}  // namespace

void AddFlags(support::FlagTable& flags, Options& options) {
  flags.AddText("model", &options.model, "PATH",
                "config.json of a model, or a folder with it and perhaps weights");
  flags.AddText("data", &options.data, "FILE",
                "text to train on, whose bytes are the tokens, or ids of tokens");
  flags.AddChoice("data_format", &options.data_format, {"auto", "text", "llmc", "uint16", "uint32"},
                  "of data files; auto: llm.c's by their header, else text");
  flags.AddText("config", &options.config, "FILE",
                "DeepSpeed's JSON; flags add to it and do not contradict it");
  flags.AddCount("ranks", &options.ranks, 1, 256, "ranks, as threads; a launcher's are processes");
  flags.AddCount("stage", &options.stage, 0, 3,
                 "what is sharded: 0 nothing, 1 states, 2 and gradients, 3 and weights");
  flags.AddChoice("dtype", &options.dtype, {"fp32", "bf16", "fp16"},
                  "weights, gradients, activations");
  flags.AddNumber("loss_scale", &options.loss_scale, 0, kLargestScale,
                  "factor of the loss; 0: dynamic from 65536 on in fp16, else 1");
  flags.AddChoice("loss_scaling", &options.loss_scaling, {"dynamic", "grad_scaler"},
                  "of a dynamic scale: DeepSpeed's rule, or PyTorch's");
  flags.AddChoice("accumulation_dtype", &options.accumulation_dtype, {"fp32", "bf16", "fp16"},
                  "gradients kept between micro-batches");
  flags.AddCount("max_skips", &options.max_skips, 0, kMost,
                 "steps skipped in a row that end the run; 0: none do");
  flags.AddSwitch("check_overflow", &options.check_overflow,
                  "inf or NaN in a gradient skips the step; false: it does not");
  flags.AddSwitch("check_gradients", &options.check_gradients,
                  "find the rank that writes inf or NaN: one more read of gradients");
  flags.AddCount("steps", &options.steps, 1, kMost, "optimizer steps");
  flags.AddCount("micro_batch", &options.micro_batch, 1, 1 << 20, "samples of a rank in one pass");
  flags.AddCount("accumulation", &options.accumulation, 1, 1 << 20, "passes of a step");
  flags.AddCount("sequence_length", &options.sequence_length, 0, 1 << 24,
                 "tokens of a sample; 0: the model's max_position_embeddings");
  flags.AddChoice("optimizer", &options.optimizer, {"adamw", "adam", "sgd", "lion"},
                  "adam adds the weight decay to the gradient");
  flags.AddNumber("learning_rate", &options.learning_rate, 0, 1000, "highest rate");
  flags.AddCount("warmup_steps", &options.warmup_steps, 0, kMost,
                 "steps over which the rate rises in a line from 0");
  flags.AddChoice("schedule", &options.schedule, {"constant", "linear", "cosine", "restarts"},
                  "rate after the warm-up: kept, or falling to 0");
  flags.AddCount("cycles", &options.cycles, 1, kMost, "of --schedule restarts");
  flags.AddNumber("weight_decay", &options.weight_decay, 0, 1000,
                  "of matrices; one-dimensional parameters have none");
  flags.AddList("no_decay", &options.no_decay, "NAMES",
                "tensors that have none either, with commas; * is any text");
  flags.AddList("freeze", &options.freeze, "NAMES", "tensors that stay as they are, likewise");
  flags.AddNumber("beta1", &options.beta1, 0, 0.999999, "decay of the first moment");
  flags.AddNumber("beta2", &options.beta2, 0, 0.999999999,
                  "decay of the second moment; for lion 0.99 unless given");
  flags.AddNumber("epsilon", &options.epsilon, 1e-30, 1, "added to the root of the second moment");
  flags.AddNumber("momentum", &options.momentum, 0, 0.999999, "of sgd");
  flags.AddChoice("master", &options.master, {"fp32", "split", "none"},
                  "kept of 16-bit weights: fp32, the low 16 bits of fp32, nothing");
  flags.AddNumber("clip", &options.clip, 0, 1e30, "limit of the gradient's norm; 0: none");
  flags.AddCount("seed", &options.seed, 0, kMany, "of initial weights and order of samples");
  flags.AddSwitch("shuffle", &options.shuffle, "samples in random order; false: order of the file");
  AddDeviceFlags(flags, options.device, options.cuda_device, "what a rank computes on",
                 "the local rank, or 0 for threads");
  flags.AddCount("threads", &options.threads, 0, 4096, "of all ranks together; 0: all processors");
  flags.AddChoice("simd", &options.simd, {"best", "avx512", "avx2", "sse4", "ssse3", "scalar"},
                  "most that the loops may use; products have their own choice");
  flags.AddCount("reduce_bucket_size", &options.reduce_bucket_size, 1, kMany,
                 "gradient elements reduced in one call");
  flags.AddChoice("reduction", &options.reduction, {"ordered", "native", "auto"},
                  "who adds gradients: this library in order, or NCCL");
  flags.AddCount("prefetch", &options.prefetch, 0, 1024, "units gathered ahead in stage 3");
  AddPlaceFlags(flags, options.offload);
  AddMemoryFlags(flags, options.offload);
  flags.AddCount("deadline", &options.deadline, 1, kMost,
                 "seconds that ranks wait for one that is silent");
  flags.AddText("output", &options.output, "FOLDER",
                "gets model.safetensors and config.json after the last step");
  flags.AddSize("max_shard_size", &options.max_shard_size, 1,
                "of a file of weights; more are spread over several, with an index");
  flags.AddChoice("output_dtype", &options.output_dtype, {"auto", "fp32", "bf16", "fp16"},
                  "of saved weights; auto: --dtype, fp32: the masters");
  flags.AddText("metrics", &options.metrics, "FILE", "gets one line of JSON a step");
  AddCheckpointFlags(flags, options);
  flags.AddCount("log_every", &options.log_every, 1, kMost,
                 "steps from line to line where no terminal shows progress");
  flags.AddCount("evaluate_every", &options.evaluate_every, 0, kMost,
                 "steps from evaluation to evaluation; 0: none");
  flags.AddCount("evaluate_batches", &options.evaluate_batches, 1, kMost,
                 "micro-batches of a rank in an evaluation");
  flags.AddText("evaluate_data", &options.evaluate_data, "FILE",
                "text to evaluate on, from its start; empty: the training text");
  flags.AddSwitch("compare_stages", &options.compare_stages,
                  "train --steps steps in each stage and print them side by side");
  flags.AddCount("repeats", &options.repeats, 1, 1000, "rounds of --compare_stages");
}

absl::Status CheckEffects(const support::FlagTable& flags, const Options& options) {
  const bool sgd = options.optimizer == "sgd";
  const bool adam = options.optimizer == "adam" || options.optimizer == "adamw";
  const struct {
    const char* flag;
    bool effective;
    const char* belongs;
  } rules[] = {{"momentum", sgd, "--optimizer sgd"},
               {"beta1", !sgd, "--optimizer adamw, adam or lion"},
               {"beta2", !sgd, "--optimizer adamw, adam or lion"},
               {"epsilon", adam, "--optimizer adamw or adam"},
               {"loss_scaling",
                options.dtype == "fp16" && options.loss_scale == 0 && !options.file.has_value(),
                "--dtype fp16 without --loss_scale and --config"},
               {"cycles", options.schedule == "restarts", "--schedule restarts"},
               {"prefetch", options.stage == 3 || options.compare_stages, "--stage 3"},
               {"max_shard_size", !options.output.empty(), "--output"},
               {"output_dtype", !options.output.empty(), "--output"},
               {"save_every", !options.checkpoint_dir.empty(), "--checkpoint_dir"},
               {"save_every_minutes", !options.checkpoint_dir.empty(), "--checkpoint_dir"},
               {"keep_last", !options.checkpoint_dir.empty(), "--checkpoint_dir"},
               {"keep_every", options.keep_last > 0, "--keep_last"},
               {"checkpoint_memory", !options.checkpoint_dir.empty(), "--checkpoint_dir"},
               {"repeats", options.compare_stages, "--compare_stages"},
               {"evaluate_batches", options.evaluate_every > 0, "--evaluate_every"}};
  for (const auto& rule : rules) {
    if (rule.effective || !flags.Given(rule.flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", rule.flag, " is given, but has no effect: it belongs to ", rule.belongs));
  }
  return CheckOffloadEffects(flags, options.offload, options.stage, options.compare_stages);
}

absl::Status FinishOptions(Options& options) {
  const auto wrong = [](const std::string& text) { return absl::InvalidArgumentError(text); };
  if (options.model.empty()) {
    return wrong("--model is missing; it must name a config.json or its folder");
  }
  if (options.data.empty()) return wrong("--data is missing; it must name a file");
  if (options.accumulation_dtype != "fp32" && options.accumulation_dtype != options.dtype) {
    return wrong(absl::StrCat("--accumulation_dtype is '", options.accumulation_dtype,
                              "'; with --dtype ", options.dtype, " it must be fp32",
                              options.dtype == "fp32" ? "" : " or " + options.dtype));
  }
  if (!options.check_overflow && OptimizerConfig(options).loss_scale.kind != LossScaling::kStatic) {
    const std::string scale = options.file.has_value()
                                  ? absl::StrCat("fp16.loss_scale of ", options.config)
                                  : "--loss_scale";
    return wrong(absl::StrCat("--check_overflow is false, but ", scale, " is 0 with --dtype ",
                              options.dtype,
                              ": a dynamic scale moves by what the check finds; --check_overflow "
                              "must be true, or ",
                              scale, " above 0"));
  }
  if (options.master != "fp32" && options.dtype != "bf16") {
    return wrong(absl::StrCat("--master is '", options.master, "'; with --dtype ", options.dtype,
                              " it must be fp32: only bf16 weights can do without"));
  }
  if (options.compare_stages && !(options.output.empty() && options.metrics.empty())) {
    return wrong(absl::StrCat(options.output.empty() ? "--metrics" : "--output",
                              " is given with --compare_stages, which saves nothing"));
  }
  if (!options.output.empty() && options.stage == 3 && options.file.has_value() &&
      !options.file->config.gather_16bit_weights_on_model_save) {
    return wrong(absl::StrCat("--output is given, but ", options.config,
                              ": zero_optimization.stage3_gather_16bit_weights_on_model_save is "
                              "false, which forbids whole weights in stage 3"));
  }
  if (options.compare_stages && options.steps < 3) {
    return wrong(absl::StrCat("--steps is ", options.steps,
                              "; with --compare_stages it must be at least 3, as the first two "
                              "are not timed"));
  }
  if (options.compare_stages && options.evaluate_every > 0) {
    return wrong("--evaluate_every is given with --compare_stages, which does not evaluate");
  }
  if (!options.evaluate_data.empty() && options.evaluate_every == 0) {
    return wrong("--evaluate_data is given, but --evaluate_every is 0; it must be at least 1");
  }
  if (!(options.file.has_value() && options.file->config.schedule)) {
    const absl::StatusOr<Schedule> schedule = ScheduleOf(options);
    if (!schedule.ok()) return wrong(absl::StrCat("--schedule: ", schedule.status().message()));
  }
  // Of the stages that are compared, each does what it can.
  ZERO_RETURN_IF_ERROR(
      CheckOffloadOptions(options.offload, options.compare_stages ? 3 : options.stage));
  ZERO_RETURN_IF_ERROR(CheckCheckpointOptions(options));
  if (options.threads == 0) options.threads = std::max(1u, std::thread::hardware_concurrency());
  return absl::OkStatus();
}

absl::Status FinishOptions(Options& options, const llama::LlamaConfig& model) {
  if (options.sequence_length == 0) options.sequence_length = model.max_position_embeddings;
  if (options.sequence_length > model.max_position_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequence_length is ", options.sequence_length,
                     "; it must be at most the model's max_position_embeddings (",
                     model.max_position_embeddings, ")"));
  }
  return CheckPatterns(options, model);
}

absl::StatusOr<Schedule> ScheduleOf(const Options& options) {
  const WarmUp warmup{options.warmup_steps, 0};
  if (options.schedule == "linear") {
    return MakeSchedule(LinearSchedule{options.learning_rate, options.steps, warmup});
  }
  if (options.schedule == "cosine") {
    return MakeSchedule(CosineSchedule{options.learning_rate, options.steps, warmup, 0.5});
  }
  if (options.schedule == "restarts") {
    return MakeSchedule(
        CosineRestartsSchedule{options.learning_rate, options.steps, warmup, options.cycles});
  }
  return MakeSchedule(ConstantSchedule{options.learning_rate, options.warmup_steps});
}

Config OptimizerConfig(const Options& options) {
  Config config;
  if (options.file.has_value()) config = options.file->config;
  config.stage = static_cast<int>(options.stage);
  config.offload = OffloadOfStage(OffloadOf(options.offload, config.offload), config.stage);
  config.optimizer = OptimizerOf(options.optimizer);
  if (!config.schedule) config.schedule = ScheduleOf(options).value_or(Schedule());
  config.beta1 = options.beta1;
  config.beta2 = options.beta2;
  config.epsilon = options.epsilon;
  config.momentum = options.momentum;
  config.groups.assign(2, {});
  config.groups[llama::kDecayedGroup].weight_decay = options.weight_decay;
  AddPatternGroups(options, config);
  config.clip_norm = options.clip;
  config.master = MasterOf(options.master);
  if (config.master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
  if (options.loss_scale > 0) {
    config.loss_scale = LossScale();
    config.loss_scale.scale = options.loss_scale;
  } else if (options.dtype == "fp16" && !options.file.has_value()) {
    config.loss_scale.kind = LossScaling::kDynamic;
    config.loss_scale.scale = 65536;
    if (options.loss_scaling == "grad_scaler") {
      config.loss_scale.kind = LossScaling::kGradScaler;
      config.loss_scale.window = 2000;  // PyTorch's default
    }
  }
  config.max_consecutive_skips = options.max_skips;
  config.check_overflow = options.check_overflow;
  config.check_gradients = options.check_gradients;
  // The flags allow these names only.
  config.accumulation = ParseDType(options.accumulation_dtype).value_or(DType::kF32);
  config.reduce_bucket_size = options.reduce_bucket_size;
  config.prefetch = static_cast<int>(options.prefetch);
  config.checkpoint_memory = options.checkpoint_dir.empty() ? 0 : options.checkpoint_memory;
  config.reduction = ParseReductionKind(options.reduction).value_or(ReductionKind::kOrdered);
  return config;
}

llama::Dealing DealingOf(const Options& options, int64_t rank) {
  return {options.ranks, rank, options.micro_batch, options.accumulation};
}

int64_t TokensPerStep(const Options& options) {
  return options.ranks * options.micro_batch * options.accumulation * options.sequence_length;
}

absl::StatusOr<llama::LlamaModel::Options> ModelOptions(const Options& options,
                                                        const llama::LlamaConfig& model) {
  llama::LlamaModel::Options result;
  result.micro_batch = options.micro_batch;
  result.sequence_length = options.sequence_length;
  ZERO_ASSIGN_OR_RETURN(result.dtype, ParseDType(options.dtype));
  if (result.dtype == DType::kF16) {
    // The loss scale is meant for the mean of a micro-batch's losses. The nearest power of two
    // rounds nothing.
    const auto tokens = static_cast<uint64_t>(options.micro_batch * options.sequence_length);
    result.loss_factor = std::ldexp(1.0f, 1 - static_cast<int>(std::bit_width(tokens)));
  }
  result.product_threads = ProductThreads(options.threads / options.ranks,
                                          options.micro_batch * options.sequence_length, model);
  result.product_workspace_bytes = ProductWorkspaceBytes(options.device);
  return result;
}

}  // namespace zero::train
