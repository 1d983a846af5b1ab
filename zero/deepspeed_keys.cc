#include "zero/deepspeed_keys.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

constexpr KeyKind kSwitch = KeyKind::kSwitch;
constexpr KeyKind kCount = KeyKind::kCount;
constexpr KeyKind kNumber = KeyKind::kNumber;
constexpr KeyKind kText = KeyKind::kText;
constexpr KeyKind kList = KeyKind::kList;
constexpr KeyKind kSection = KeyKind::kSection;
constexpr KeyFate kHonoured = KeyFate::kHonoured;
constexpr KeyFate kIgnored = KeyFate::kIgnored;
constexpr KeyFate kAbsent = KeyFate::kAbsent;
constexpr KeyFate kRefused = KeyFate::kRefused;

constexpr char kOverlaps[] = "communication has a stream of its own and always overlaps";
constexpr char kUnits[] = "weights are gathered and released a unit at a time";
constexpr char kFp32Moments[] = "moments are kept in fp32";
constexpr char kOtherData[] = "the trainer deals its samples";
constexpr char kOwnCheckpoints[] = "checkpoints are written by this library alone";
constexpr char kPipelined[] = "reads, updates and writes of pieces always overlap";
constexpr char kNoQuantised[] = "nothing is quantised on the wire";

constexpr DeepSpeedKey kKeys[] = {
    {"train_batch_size", kCount, kHonoured, "", ""},
    {"train_micro_batch_size_per_gpu", kCount, kHonoured, "", ""},
    {"gradient_accumulation_steps", kCount, kHonoured, "", ""},
    {"steps_per_print", kCount, kHonoured, "", ""},

    {"optimizer", kSection, kHonoured, "", ""},
    {"optimizer.type", kText, kHonoured, "", ""},
    {"optimizer.legacy_fusion", kSwitch, kIgnored, "false", "it is about apex"},
    {"optimizer.params", kSection, kHonoured, "", ""},
    {"optimizer.params.lr", kNumber, kHonoured, "", ""},
    {"optimizer.params.betas", kList, kHonoured, "", ""},
    {"optimizer.params.eps", kNumber, kHonoured, "", ""},
    {"optimizer.params.weight_decay", kNumber, kHonoured, "", ""},
    {"optimizer.params.adam_w_mode", kSwitch, kHonoured, "", ""},
    {"optimizer.params.bias_correction", kSwitch, kHonoured, "", ""},
    {"optimizer.params.momentum", kNumber, kHonoured, "", ""},
    {"optimizer.params.nesterov", kSwitch, kHonoured, "", ""},
    {"optimizer.params.torch_adam", kSwitch, kIgnored, "", "one formula serves hosts and GPUs"},
    {"optimizer.params.fused", kSwitch, kIgnored, "true", "updates are always fused"},
    {"optimizer.params.foreach", kSwitch, kIgnored, "", "updates are always fused"},
    {"optimizer.params.capturable", kSwitch, kIgnored, "false", "CUDA graphs are not used"},
    {"optimizer.params.differentiable", kSwitch, kRefused, "false",
     "updates have no derivatives here"},
    {"optimizer.params.fp32_optimizer_states", kSwitch, kIgnored, "true", kFp32Moments},
    {"optimizer.params.amsgrad", kSwitch, kRefused, "false", "AMSGrad does not exist here"},
    {"optimizer.params.maximize", kSwitch, kRefused, "false",
     "a loss is made smaller here; change its sign"},
    {"optimizer.params.dampening", kNumber, kRefused, "0", "SGD has no dampening here"},
    {"optimizer.params.max_grad_norm", kNumber, kRefused, "0",
     "the limit of the norm is the key gradient_clipping at the top"},

    {"scheduler", kSection, kHonoured, "", ""},
    {"scheduler.type", kText, kHonoured, "", ""},
    {"scheduler.params", kSection, kHonoured, "", ""},
    {"scheduler.params.last_batch_iteration", kCount, kIgnored, "-1",
     "the count of applied steps belongs to the state"},
    {"scheduler.params.warmup_min_lr", kNumber, kHonoured, "", ""},
    {"scheduler.params.warmup_max_lr", kNumber, kHonoured, "", ""},
    {"scheduler.params.warmup_num_steps", kCount, kHonoured, "", ""},
    {"scheduler.params.warmup_type", kText, kHonoured, "", ""},
    {"scheduler.params.total_num_steps", kCount, kHonoured, "", ""},
    {"scheduler.params.warmup_min_ratio", kNumber, kHonoured, "", ""},
    {"scheduler.params.cos_min_ratio", kNumber, kHonoured, "", ""},
    {"scheduler.params.cycle_min_lr", kNumber, kHonoured, "", ""},
    {"scheduler.params.cycle_max_lr", kNumber, kHonoured, "", ""},
    {"scheduler.params.decay_lr_rate", kNumber, kHonoured, "", ""},
    {"scheduler.params.cycle_first_step_size", kCount, kHonoured, "", ""},
    {"scheduler.params.cycle_second_step_size", kCount, kHonoured, "", ""},
    {"scheduler.params.cycle_first_stair_count", kCount, kHonoured, "", ""},
    {"scheduler.params.cycle_second_stair_count", kCount, kHonoured, "", ""},
    {"scheduler.params.decay_step_size", kCount, kHonoured, "", ""},
    {"scheduler.params.cycle_momentum", kSwitch, kHonoured, "", ""},
    {"scheduler.params.cycle_min_mom", kNumber, kHonoured, "", ""},
    {"scheduler.params.cycle_max_mom", kNumber, kHonoured, "", ""},
    {"scheduler.params.decay_mom_rate", kNumber, kHonoured, "", ""},
    {"scheduler.params.lr_range_test_min_lr", kNumber, kHonoured, "", ""},
    {"scheduler.params.lr_range_test_step_size", kCount, kHonoured, "", ""},
    {"scheduler.params.lr_range_test_step_rate", kNumber, kHonoured, "", ""},
    {"scheduler.params.lr_range_test_staircase", kSwitch, kHonoured, "", ""},

    {"fp16", kSection, kHonoured, "", ""},
    {"fp16.enabled", kSwitch, kHonoured, "", ""},
    {"fp16.loss_scale", kNumber, kHonoured, "", ""},
    {"fp16.initial_scale_power", kCount, kHonoured, "", ""},
    {"fp16.loss_scale_window", kCount, kHonoured, "", ""},
    {"fp16.hysteresis", kCount, kHonoured, "", ""},
    {"fp16.consecutive_hysteresis", kSwitch, kHonoured, "", ""},
    {"fp16.min_loss_scale", kNumber, kHonoured, "", ""},
    {"fp16.auto_cast", kSwitch, kIgnored, "false", "the trainer converts its inputs"},
    {"fp16.fused_mode", kSwitch, kIgnored, "true", "updates are always fused"},
    {"fp16.fp16_master_weights_and_grads", kSwitch, kIgnored, "false",
     "fp16 weights have fp32 masters, as fp16 loses small updates"},

    {"bf16", kSection, kHonoured, "", ""},
    {"bf16.enabled", kSwitch, kHonoured, "", ""},
    {"bf16.bf16_master_weights_and_grads", kSwitch, kHonoured, "", ""},
    {"bf16.bf16_optimizer_states", kSwitch, kIgnored, "false", kFp32Moments},
    {"bf16.check_grad_overflow", kSwitch, kHonoured, "",
     "in every stage; false: inf and NaN reach the weights, and with gradient_clipping 0 offloaded "
     "units step during backward"},
    {"bf16.immediate_grad_update", kSwitch, kIgnored, "true",
     "gradients are added as soon as they are written"},

    {"data_types", kSection, kHonoured, "", ""},
    {"data_types.grad_accum_dtype", kText, kHonoured, "", ""},
    {"data_types.param_dtype", kText, kHonoured, "", ""},
    {"data_types.buffer_dtype", kText, kIgnored, "", "buffers belong to the trainer"},

    {"gradient_clipping", kNumber, kHonoured, "", ""},
    {"prescale_gradients", kSwitch, kHonoured, "", ""},
    {"gradient_predivide_factor", kNumber, kHonoured, "", ""},
    {"gradient_allreduce_op", kText, kRefused, "\"mean\"", "gradients are averaged"},
    {"communication_data_type", kText, kHonoured, "", ""},
    {"seq_parallel_comm_data_type", kText, kIgnored, "", "there is no sequence parallelism"},
    {"sparse_gradients", kSwitch, kIgnored, "false", "gradients are dense"},
    {"managed_gradient_accumulation", kSwitch, kIgnored, "true",
     "the trainer says which micro-batch is the last of a step"},

    {"zero_optimization", kSection, kHonoured, "", ""},
    {"zero_optimization.stage", kCount, kHonoured, "", ""},
    {"zero_optimization.reduce_bucket_size", kCount, kHonoured, "", ""},
    {"zero_optimization.stage3_prefetch_bucket_size", kCount, kHonoured, "", ""},
    {"zero_optimization.stage3_param_persistence_threshold", kCount, kIgnored, "0", kUnits},
    {"zero_optimization.stage3_model_persistence_threshold", kCount, kIgnored, "", kUnits},
    {"zero_optimization.stage3_max_live_parameters", kCount, kIgnored, "", kUnits},
    {"zero_optimization.stage3_max_reuse_distance", kCount, kIgnored, "", kUnits},
    {"zero_optimization.stage3_module_granularity_threshold", kCount, kIgnored, "0", kUnits},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kSwitch, kIgnored, "false",
     kUnits},
    {"zero_optimization.stage3_allgather_sequential", kSwitch, kIgnored, "false", kUnits},
    {"zero_optimization.stage3_partition_stream_chunk_size", kCount, kIgnored, "0",
     "no rank ever holds all weights at once"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kSwitch, kHonoured, "", ""},
    {"zero_optimization.leaf_module", kSection, kIgnored, "", "the trainer says what a unit is"},
    {"zero_optimization.sub_group_size", kCount, kIgnored, "",
     "the optimizer updates a unit at a time"},
    {"zero_optimization.contiguous_gradients", kSwitch, kIgnored, "true",
     "gradients are always contiguous"},
    {"zero_optimization.reduce_scatter", kSwitch, kIgnored, "true",
     "each rank always receives what it owns and no more"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kSwitch, kIgnored, "",
     "each rank always receives what it owns and no more"},
    {"zero_optimization.allgather_partitions", kSwitch, kIgnored, "true", kUnits},
    {"zero_optimization.allgather_bucket_size", kCount, kIgnored, "", kUnits},
    {"zero_optimization.overlap_comm", kSwitch, kIgnored, "true", kOverlaps},
    {"zero_optimization.round_robin_gradients", kSwitch, kIgnored, "false",
     "each rank owns an equal slice of every unit"},
    {"zero_optimization.ignore_unused_parameters", kSwitch, kIgnored, "true",
     "a parameter without a gradient has a zero gradient"},
    {"zero_optimization.legacy_stage1", kSwitch, kIgnored, "false", "there is one stage 1"},
    {"zero_optimization.memory_efficient_linear", kSwitch, kIgnored, "",
     "the trainer owns its products"},
    {"zero_optimization.override_module_apply", kSwitch, kIgnored, "", "there are no modules"},
    {"zero_optimization.log_trace_cache_warnings", kSwitch, kIgnored, "false", "nothing is traced"},
    {"zero_optimization.enable_sanity_checks", kSwitch, kIgnored, "false",
     "checks are Config::poison_slots and Config::check_gradients"},
    {"zero_optimization.compute_grad_norm", kSwitch, kIgnored, "true",
     "the norm is a by-product of the reduction"},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kSwitch, kIgnored, "false",
     "there is no Muon"},
    {"zero_optimization.offload_optimizer", kSection, kHonoured, "", ""},
    {"zero_optimization.offload_optimizer.device", kText, kHonoured, "", ""},
    {"zero_optimization.offload_optimizer.nvme_path", kText, kHonoured, "", ""},
    {"zero_optimization.offload_optimizer.buffer_count", kCount, kHonoured, "", ""},
    {"zero_optimization.offload_optimizer.pin_memory", kSwitch, kHonoured, "", ""},
    {"zero_optimization.offload_optimizer.pipeline", kSwitch, kIgnored, "true", kPipelined},
    {"zero_optimization.offload_optimizer.pipeline_read", kSwitch, kIgnored, "true", kPipelined},
    {"zero_optimization.offload_optimizer.pipeline_write", kSwitch, kIgnored, "true", kPipelined},
    {"zero_optimization.offload_optimizer.fast_init", kSwitch, kIgnored, "",
     "a new file reads as zeros, and masters are written once, in pieces"},
    {"zero_optimization.offload_optimizer.ratio", kNumber, kHonoured, "", ""},
    {"zero_optimization.offload_optimizer.super_offload", kSwitch, kAbsent, "false",
     "no update begins before it is known that the step applies"},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber, kIgnored, "",
     "updates on the host have the threads that the trainer's kernels have"},
    {"zero_optimization.offload_param", kSection, kHonoured, "", ""},
    {"zero_optimization.offload_param.device", kText, kHonoured, "", ""},
    {"zero_optimization.offload_param.nvme_path", kText, kHonoured, "", ""},
    {"zero_optimization.offload_param.buffer_count", kCount, kIgnored, "",
     "weights have as many buffers as states, offload_optimizer.buffer_count"},
    {"zero_optimization.offload_param.buffer_size", kCount, kIgnored, "",
     "weights move in pieces of 1048576 elements, so that no buffer has to hold a whole tensor"},
    {"zero_optimization.offload_param.max_in_cpu", kCount, kIgnored, "",
     "of weights on a disk nothing stays in memory but what is on its way"},
    {"zero_optimization.offload_param.pin_memory", kSwitch, kHonoured, "", ""},
    {"zero_optimization.cpu_offload", kSwitch, kHonoured, "", ""},
    {"zero_optimization.cpu_offload_param", kSwitch, kHonoured, "", ""},
    {"zero_optimization.cpu_offload_use_pin_memory", kSwitch, kHonoured, "", ""},
    {"zero_optimization.load_from_fp32_weights", kSwitch, kIgnored, "true",
     "a checkpoint has the masters, and they are what is loaded"},
    {"zero_optimization.elastic_checkpoint", kSwitch, kHonoured, "", ""},
    {"zero_optimization.pipeline_loading_checkpoint", kSwitch, kIgnored, "false",
     "each rank reads what it stores and no more"},
    {"zero_optimization.zero_hpz_partition_size", kCount, kAbsent, "1",
     "weights are sharded over all ranks"},
    {"zero_optimization.zero_quantized_weights", kSwitch, kAbsent, "false", kNoQuantised},
    {"zero_optimization.zero_quantized_nontrainable_weights", kSwitch, kAbsent, "false",
     kNoQuantised},
    {"zero_optimization.zero_quantized_gradients", kSwitch, kAbsent, "false", kNoQuantised},
    {"zero_optimization.zeropp_loco_param", kSection, kAbsent, "", kNoQuantised},
    {"zero_optimization.mics_shard_size", kCount, kAbsent, "-1",
     "weights are sharded over all ranks"},
    {"zero_optimization.mics_hierarchical_params_gather", kSwitch, kAbsent, "false",
     "weights are gathered in one call"},
    {"zero_optimization.zenflow", kSection, kAbsent, "", "every update is complete in its step"},
    {"zero_allow_untested_optimizer", kSwitch, kHonoured, "", ""},
    {"zero_force_ds_cpu_optimizer", kSwitch, kIgnored, "", "one formula serves hosts and GPUs"},

    {"aio", kSection, kIgnored, "",
     "requests to a disk have a size and depth that suit what is moved"},
    {"checkpoint", kSection, kHonoured, "", ""},
    {"checkpoint.tag_validation", kText, kIgnored, "", "rank 0 names a checkpoint for all ranks"},
    {"checkpoint.load_universal", kSwitch, kHonoured, "", ""},
    {"checkpoint.use_node_local_storage", kSwitch, kAbsent, "false",
     "a checkpoint lies in one folder, which all ranks see"},
    {"checkpoint.parallel_write", kSection, kIgnored, "",
     "each rank always writes a file of its own"},
    {"checkpoint.checkpoint_serialization", kSwitch, kIgnored, "true",
     "checkpoints are files of safetensors"},
    {"checkpoint.writer", kSection, kIgnored, "",
     "what is written while training goes on is up to Config::checkpoint_memory"},
    {"nebula", kSection, kIgnored, kNotEnabled, kOwnCheckpoints},
    {"datastates_ckpt", kSection, kIgnored, kNotEnabled, kOwnCheckpoints},
    {"activation_checkpointing", kSection, kIgnored, "",
     "the trainer decides what it computes twice"},
    {"tensorboard", kSection, kAbsent, kNotEnabled, "zero-train has --metrics"},
    {"csv_monitor", kSection, kAbsent, kNotEnabled, "zero-train has --metrics"},
    {"wandb", kSection, kIgnored, kNotEnabled, "zero-train has --metrics"},
    {"comet", kSection, kIgnored, kNotEnabled, "zero-train has --metrics"},
    {"comms_logger", kSection, kAbsent, kNotEnabled, "--metrics has the bytes of each step"},
    {"flops_profiler", kSection, kAbsent, kNotEnabled, "--metrics has the seconds of each step"},
    {"wall_clock_breakdown", kSwitch, kAbsent, "false", "--metrics has the seconds of each step"},
    {"memory_breakdown", kSwitch, kAbsent, "false", "--metrics has the bytes in use, by category"},
    {"timers", kSection, kIgnored, "", "--metrics has the seconds of each step"},
    {"dump_state", kSwitch, kIgnored, "false", "the resolved configuration is always printed"},

    {"amp", kSection, kRefused, kNotEnabled, "use fp16 or bf16"},
    {"elasticity", kSection, kRefused, kNotEnabled, "it would choose other batch sizes"},
    {"autotuning", kSection, kRefused, kNotEnabled, "it would choose another configuration"},
    {"curriculum_learning", kSection, kRefused, kNotEnabled, kOtherData},
    {"data_efficiency", kSection, kRefused, kNotEnabled, kOtherData},
    {"progressive_layer_drop", kSection, kRefused, kNotEnabled, "layers belong to the trainer"},
    {"compression_training", kSection, kRefused, kNotEnabled, "weights are not compressed"},
    {"quantize_training", kSection, kRefused, kNotEnabled, "weights are not compressed"},
    {"sparse_attention", kSection, kRefused, "", "attention belongs to the trainer"},
    {"sequence_parallel_size", kCount, kRefused, "1",
     "there is no sequence parallelism; every rank has samples of its own"},
    {"tensor_parallel", kSection, kIgnored, "",
     "there is no tensor parallelism; every rank computes whole layers of its own samples"},
    {"pipeline", kSection, kIgnored, "", "there is no pipeline parallelism"},
    {"use_data_before_expert_parallelism", kSwitch, kIgnored, "false",
     "there is no expert parallelism"},
    {"eigenvalue", kSection, kIgnored, kNotEnabled, "it serves compression_training"},
    {"hybrid_engine", kSection, kIgnored, kNotEnabled, "nothing is generated while training"},
    {"compile", kSection, kIgnored, "", "there is no compiler"},
    {"disable_allgather", kSwitch, kIgnored, "false", "weights have to be gathered"},
    {"graph_harvesting", kSwitch, kIgnored, "false", "CUDA graphs are not used"},
    {"dataloader_drop_last", kSwitch, kIgnored, "", kOtherData},
    {"vocabulary_size", kCount, kIgnored, "", "the model says its own"},
};

// Older and other spellings.
const std::map<std::string, std::string>& Spellings() {
  static const auto* spellings = [] {
    auto* all = new std::map<std::string, std::string>{
        {"bfloat16", "bf16"},
        {"seq_parallel_communication_data_type", "seq_parallel_comm_data_type"},
        {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
         "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
        {"zero_optimization.gather_fp16_weights_on_model_save",
         "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    };
    // DeepSpeed takes these without their prefix as well.
    const std::string section = "zero_optimization.";
    for (const char* name :
         {"prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold",
          "max_live_parameters", "max_reuse_distance", "gather_16bit_weights_on_model_save",
          "module_granularity_threshold", "use_all_reduce_for_fetch_params", "allgather_sequential",
          "partition_stream_chunk_size"}) {
      (*all)[section + name] = section + "stage3_" + name;
    }
    return all;
  }();
  return *spellings;
}

}  // namespace

const char* Name(KeyFate fate) {
  switch (fate) {
    case KeyFate::kHonoured:
      return "honoured";
    case KeyFate::kIgnored:
      return "ignored";
    case KeyFate::kAbsent:
      return "not here yet";
    case KeyFate::kRefused:
      break;
  }
  return "refused";
}

absl::Span<const DeepSpeedKey> DeepSpeedKeys() { return kKeys; }

const DeepSpeedKey* FindDeepSpeedKey(const std::string& path) {
  const auto keys = DeepSpeedKeys();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const DeepSpeedKey& key) { return path == key.path; });
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> KeysOfSection(const std::string& section) {
  std::vector<std::string> names;
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    if (SectionOf(key.path) == section) names.push_back(LastName(key.path));
  }
  return names;
}

std::string PresentPath(const std::string& path) {
  // A section may have another spelling, and so may a key in it.
  const size_t point = path.find('.');
  std::string present = path;
  const auto first = Spellings().find(path.substr(0, point));
  if (first != Spellings().end()) {
    present = first->second + (point == std::string::npos ? "" : path.substr(point));
  }
  const auto found = Spellings().find(present);
  return found == Spellings().end() ? present : found->second;
}

std::string SectionOf(const std::string& path) {
  const size_t point = path.rfind('.');
  return point == std::string::npos ? "" : path.substr(0, point);
}

std::string LastName(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace zero
