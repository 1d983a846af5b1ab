// What zero-train is told to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/llama/config.h"
#include "examples/llama/model.h"
#include "examples/llama/tokens.h"
#include "examples/support/flags.h"
#include "examples/train/offload_options.h"
#include "zero/config.h"
#include "zero/deepspeed_config.h"
#include "zero/save/weights.h"

namespace zero::train {

// The flags of zero-train, by name; AddFlags says what each means.
struct Options {
  std::string model;
  std::string data;
  std::string data_format = Name(llama::TokenFormat::kAuto);
  std::string config;
  int64_t ranks = 1;
  int64_t stage = 3;
  std::string dtype = "bf16";
  double loss_scale = 0;
  std::string loss_scaling = "dynamic";
  int64_t max_skips = Config().max_consecutive_skips;
  bool check_overflow = Config().check_overflow;
  bool check_gradients = Config().check_gradients;
  std::string accumulation_dtype = "fp32";
  int64_t steps = 100;
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
  int64_t sequence_length = 0;
  std::string optimizer = "adamw";
  double learning_rate = 1e-3;
  int64_t warmup_steps = 0;
  std::string schedule = "constant";
  int64_t cycles = 1;
  double weight_decay = 0;
  std::string no_decay;
  std::string freeze;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0;
  std::string master = "fp32";
  double clip = 0;
  int64_t seed = 0;
  bool shuffle = true;
  std::string device = "host";
  int64_t cuda_device = -1;
  int64_t threads = 0;  // FinishOptions puts the number of processors
  std::string simd = "best";
  int64_t reduce_bucket_size = Config().reduce_bucket_size;
  int64_t prefetch = Config().prefetch;
  OffloadOptions offload;
  std::string reduction = Name(Config().reduction);
  int64_t deadline = 600;
  std::string output;
  int64_t max_shard_size = SaveWeightsOptions().max_shard_bytes;
  std::string output_dtype = "auto";
  std::string metrics;
  int64_t log_every = 10;
  int64_t evaluate_every = 0;
  int64_t evaluate_batches = 4;
  std::string evaluate_data;
  std::string checkpoint_dir;
  int64_t save_every = 0;
  double save_every_minutes = 0;
  int64_t keep_last = 0;
  int64_t keep_every = 0;
  int64_t checkpoint_memory = 1'000'000'000;
  std::string resume;
  bool compare_stages = false;
  int64_t repeats = 3;

  // What --config names, once it is read (config_file.h); its values are in the fields above too.
  std::optional<DeepSpeedConfig> file;
};

// Describes every flag to `flags`; `options` must live as long.
void AddFlags(support::FlagTable& flags, Options& options);

// Flags that were given and do nothing beside the others. kInvalidArgument names the first, and
// what it belongs to.
absl::Status CheckEffects(const support::FlagTable& flags, const Options& options);

// What the ranges of single flags cannot say: flags that are missing or contradict each other.
// kInvalidArgument names them. Fills in defaults that depend on the machine.
absl::Status FinishOptions(Options& options);

// The same for what depends on the model: patterns of names; the sequence length, and its default.
absl::Status FinishOptions(Options& options, const llama::LlamaConfig& model);

// The rate over the run. kInvalidArgument names what does not fit: a warm-up longer than the run.
absl::StatusOr<Schedule> ScheduleOf(const Options& options);

// How the optimizer is asked to do what the flags and the file say. `options` finished.
Config OptimizerConfig(const Options& options);

// What rank `rank` gets of each step's samples.
llama::Dealing DealingOf(const Options& options, int64_t rank);

// Tokens of a step, over all ranks.
int64_t TokensPerStep(const Options& options);

// What a rank's model is made for. kInvalidArgument: a dtype that there is not.
absl::StatusOr<llama::LlamaModel::Options> ModelOptions(const Options& options,
                                                        const llama::LlamaConfig& model);

}  // namespace zero::train
