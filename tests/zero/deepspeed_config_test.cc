// What becomes of the keys of a DeepSpeed configuration.
#include "zero/deepspeed_config.h"

#include <algorithm>
#include <clocale>
#include <fstream>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

ConfigContext Context(int64_t world_size = 4) {
  ConfigContext context;
  context.world_size = world_size;
  context.world_size_source = "--ranks";
  return context;
}

// A configuration that is complete by itself, with `body` in it.
std::string With(const std::string& body) {
  return absl::StrCat("{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 0,\n", body,
                      "}");
}

DeepSpeedConfig Parsed(const std::string& text, const ConfigContext& context = Context()) {
  INFO(text);
  auto config = ParseDeepSpeedConfig(text, context, "f");
  REQUIRE_OK(config.status());
  return *std::move(config);
}

// The problems of a text that is refused, a line each.
std::vector<std::string> Problems(const std::string& text,
                                  const ConfigContext& context = Context()) {
  INFO(text);
  const auto config = ParseDeepSpeedConfig(text, context, "f");
  CHECK(absl::IsInvalidArgument(config.status()));
  if (config.ok()) return {};
  return absl::StrSplit(std::string(config.status().message()), '\n');
}

// That a text has one problem, and what is in its line.
void Refused(const std::string& text, const std::vector<std::string>& words,
             const ConfigContext& context = Context()) {
  CAPTURE(text);
  const std::vector<std::string> problems = Problems(text, context);
  REQUIRE(problems.size() == 1);
  for (const std::string& word : words) CHECK_THAT(problems[0], ContainsSubstring(word));
}

bool HasNote(const DeepSpeedConfig& config, const std::string& words) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const std::string& note) { return absl::StrContains(note, words); });
}

TEST_CASE("DeepSpeedConfig: an ordinary file sets what it says, and its notes are complete") {
  const DeepSpeedConfig config = Parsed(R"({
    // how much at once
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.8, 0.95], "eps": 1e-6,
                                              "weight_decay": 0.1}},
    "bf16": {"enabled": true},
    "gradient_clipping": 0.5,
    "communication_data_type": "fp32",
    "data_types": {"grad_accum_dtype": "bf16"},
    "steps_per_print": 1e2,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "contiguous_gradients": true,
                          "overlap_comm": false, "allgather_bucket_size": 2e8},
    "wandb": {"enabled": true, "project": "p"}, "csv_monitor": {"enabled": false}, "_note": [1],
  })");
  CHECK(config.config.stage == 2);
  CHECK(config.config.optimizer == OptimizerKind::kAdamW);
  CHECK(config.config.learning_rate == 2e-5);
  CHECK(config.config.beta1 == 0.8);
  CHECK(config.config.beta2 == 0.95);
  CHECK(config.config.epsilon == 1e-6);
  REQUIRE(config.config.groups.size() == 1);
  CHECK(config.config.groups[0].weight_decay == 0.1);
  CHECK(config.config.clip_norm == 0.5);
  CHECK(config.config.communication == DType::kF32);
  CHECK(config.config.accumulation == DType::kBF16);
  CHECK(config.config.reduce_bucket_size == 500'000'000);
  CHECK(config.config.loss_scale.kind == LossScaling::kStatic);
  CHECK(config.config.loss_scale.scale == 1);
  CHECK(!config.config.schedule);
  CHECK(config.dtype == DType::kBF16);
  CHECK(config.train_batch_size == 64);
  CHECK(config.micro_batch_size == 2);
  CHECK(config.accumulation_steps == 8);
  CHECK(config.steps_per_print == 100);
  REQUIRE(config.notes.size() == 3);
  CHECK(HasNote(config, "zero_optimization.overlap_comm is ignored: "));
  CHECK(HasNote(config, "zero_optimization.allgather_bucket_size is ignored: "));
  CHECK(HasNote(config, "wandb is ignored: "));
}

TEST_CASE("DeepSpeedConfig: what is printed reads back as the same configuration") {
  const DeepSpeedConfig config = Parsed(With(R"("fp16": {"enabled": true, "loss_scale_window": 7},
    "optimizer": {"type": "adam", "params": {"lr": "auto", "adam_w_mode": false}},
    "scheduler": {"type": "warmuplr", "params": {"warmup_num_steps": 3}},
    "zero_optimization": {"stage": 1})"));
  const DeepSpeedConfig again = Parsed(config.resolved);
  CHECK(again.resolved == config.resolved);
  CHECK(again.config.optimizer == OptimizerKind::kAdam);
  CHECK(again.config.loss_scale.window == 7);
  CHECK(again.config.schedule(2) == config.config.schedule(2));
  CHECK_THAT(config.resolved,
             ContainsSubstring("\"scheduler\": {\n    \"type\": \"WarmupLR\",\n"
                               "    \"params\": {\n      \"warmup_min_lr\": 0,\n"));
  CHECK_THAT(config.resolved, ContainsSubstring("\n    \"initial_scale_power\": 16,\n"));
}

TEST_CASE("DeepSpeedConfig: an empty object is DeepSpeed's defaults but for what is documented") {
  const DeepSpeedConfig config = Parsed("{\"train_batch_size\": 4}");
  CHECK(config.config.stage == 0);
  CHECK(config.config.clip_norm == 1);
  CHECK(HasNote(config, "gradient_clipping is not given"));
  CHECK(config.config.accumulation == DType::kF32);
  CHECK(config.config.master == MasterKind::kF32);
  CHECK(config.config.gradient_predivide_factor == 1);
  CHECK(!config.config.communication.has_value());
  CHECK(config.config.reduce_bucket_size == 500'000'000);
  CHECK(config.dtype == DType::kF32);
  CHECK(config.scheduler.empty());
}

TEST_CASE("DeepSpeedConfig: any two batch sizes give the third, and one an accumulation of 1") {
  struct Case {
    std::string text;
    int64_t world, train, micro, accumulation;
  };
  for (const Case& one : {
           Case{"\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4, "
                "\"gradient_accumulation_steps\": 8",
                8, 256, 4, 8},
           Case{"\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4", 8, 256, 4, 8},
           Case{"\"train_batch_size\": 256, \"gradient_accumulation_steps\": 8", 8, 256, 4, 8},
           Case{"\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8", 3, 96,
                4, 8},
           Case{"\"train_batch_size\": 256", 8, 256, 32, 1},
           Case{"\"train_micro_batch_size_per_gpu\": 4", 8, 32, 4, 1},
           Case{"\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
                "\"gradient_accumulation_steps\": \"auto\"",
                8, 8, 1, 1},
           Case{"\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": \"auto\", "
                "\"gradient_accumulation_steps\": 2",
                8, 64, 4, 2},
       }) {
    const DeepSpeedConfig config = Parsed("{" + one.text + "}", Context(one.world));
    CHECK(config.train_batch_size == one.train);
    CHECK(config.micro_batch_size == one.micro);
    CHECK(config.accumulation_steps == one.accumulation);
  }
}

TEST_CASE("DeepSpeedConfig: batch sizes that do not fit are one error with all the numbers") {
  ConfigContext context = Context(1);
  context.world_size_source = "WORLD_SIZE";
  Refused(
      "{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4,\n"
      "\"gradient_accumulation_steps\": 8}",
      {"f: line 1 column 22: ", "train_batch_size is 256", "per_gpu is 4", "steps is 8",
       "world size is 1, from WORLD_SIZE", "4 x 8 x 1 is 32, not 256"},
      context);
  Refused("{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 3}",
          {"size is 10", "per_gpu is 3", "steps is not given", "world size is 2, from --ranks",
           "10 is no multiple of 3 x 2"},
          Context(2));
  Refused("{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 2}", {"2 x 7"},
          Context(7));
  Refused("{\"train_batch_size\": 7}", {"7 is no multiple of 1 x 4"});
  Refused("{}", {"f: train_batch_size is not given", "is needed"});
  Refused("{\"gradient_accumulation_steps\": 2}", {"steps is 2", "is needed"});
  Refused("{\"train_micro_batch_size_per_gpu\": 1e9, \"gradient_accumulation_steps\": 1e9}",
          {"more than 1000000000"}, Context(1 << 20));
  for (const char* size : {"0", "-4", "1e10"}) {
    const std::vector<std::string> problems =
        Problems(absl::StrCat("{\"train_micro_batch_size_per_gpu\": ", size, "}"));
    CHECK_THAT(problems.back(), ContainsSubstring(absl::StrCat("per_gpu is ", size, "; it must")));
  }
}

TEST_CASE("DeepSpeedConfig: auto takes the caller's value, the model's size or the default") {
  const std::string text = With(R"("gradient_accumulation_steps": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                              "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
      "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
      "stage3_gather_16bit_weights_on_model_save": "auto", "overlap_comm": "auto"})");
  ConfigContext context = Context();
  context.hidden_size = 2048;
  context.total_steps = 10;
  context.given["zero_optimization.stage"] = {"--stage", int64_t{3}};
  const DeepSpeedConfig plain = Parsed(text, context);
  CHECK(plain.config.stage == 3);
  CHECK(plain.accumulation_steps == 1);
  CHECK(plain.config.learning_rate == 1e-3);
  CHECK(plain.config.beta2 == 0.999);
  CHECK(plain.config.schedule(1) == 1e-3);  // without a warm-up
  CHECK(plain.config.schedule(11) == 0);
  CHECK(plain.dtype == DType::kBF16);
  CHECK(plain.config.reduce_bucket_size == 4194304);
  for (const char* line :
       {"\"reduce_bucket_size\": 4194304", "\"stage3_prefetch_bucket_size\": 3774873",
        "\"stage3_param_persistence_threshold\": 20480",
        "\"stage3_gather_16bit_weights_on_model_save\": true", "\"total_num_steps\": 10"}) {
    CHECK_THAT(plain.resolved, ContainsSubstring(line));
  }
  context.hidden_size = 4096;
  context.given["gradient_accumulation_steps"] = {"--accumulation", int64_t{6}};
  context.given["optimizer.params.lr"] = {"--learning_rate", 0.25};
  context.given["optimizer.params.beta2"] = {"--beta2", 0.5};
  context.given["optimizer.params.eps"] = {"--epsilon", 1e-3};
  context.given["optimizer.params.weight_decay"] = {"--weight_decay", 0.125};
  context.given["scheduler.params.warmup_num_steps"] = {"--warmup_steps", int64_t{5}};
  context.given["dtype"] = {"--dtype", std::string("fp16")};
  const DeepSpeedConfig given = Parsed(text, context);
  CHECK(given.accumulation_steps == 6);
  CHECK(given.train_batch_size == 24);
  CHECK(given.config.learning_rate == 0.25);
  CHECK(given.config.beta1 == 0.9);
  CHECK(given.config.beta2 == 0.5);
  CHECK(given.config.epsilon == 1e-3);
  CHECK(given.config.groups[0].weight_decay == 0.125);
  CHECK(given.config.schedule(6) == 0.25);
  CHECK(given.config.schedule(1) == 0);
  CHECK(given.dtype == DType::kF16);
  CHECK(given.config.reduce_bucket_size == 16777216);
  CHECK_THAT(given.resolved, ContainsSubstring("\"stage3_prefetch_bucket_size\": 15099494"));
  CHECK_THAT(given.resolved, ContainsSubstring("\"stage3_param_persistence_threshold\": 40960"));
}

TEST_CASE("DeepSpeedConfig: an auto that nothing gives a value is refused by its path") {
  Refused(With("\"zero_optimization\": {\"stage\": \"auto\"}"),
          {"f: line 2 column 32: zero_optimization.stage is \"auto\"", "0, 1, 2 or 3"});
  Refused(With("\"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}"),
          {"zero_optimization.reduce_bucket_size is \"auto\"", "hidden size"});
  Refused(With("\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": "
               "\"auto\"}}"),
          {"scheduler.params.total_num_steps is \"auto\""});
}

TEST_CASE("DeepSpeedConfig: a caller's value that the file contradicts is refused, all at once") {
  ConfigContext context = Context();
  context.given["train_micro_batch_size_per_gpu"] = {"--micro_batch", int64_t{2}};
  context.given["gradient_clipping"] = {"--clip", 0.5};
  context.given["optimizer"] = {"--optimizer", std::string("adam")};
  context.given["optimizer.params.lr"] = {"--learning_rate", 1e-3};
  context.given["optimizer.params.beta1"] = {"--beta1", 0.8};
  context.given["dtype"] = {"--dtype", std::string("bf16")};
  context.given["zero_optimization.stage"] = {"--stage", int64_t{3}};
  context.given["scheduler.type"] = {"--schedule", std::string("linear")};
  context.given["prefetch"] = {"--prefetch", int64_t{2}};
  const std::vector<std::string> problems = Problems(With(R"(
    "optimizer": {"type": "Adam", "params": {"lr": 1e-5, "betas": [0.9, 0.99]}},
    "fp16": {"enabled": true},
    "scheduler": {"type": "WarmupLR"},
    "zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 0})"),
                                                     context);
  const std::vector<std::string> wanted = {
      "f: line 1 column 36: train_micro_batch_size_per_gpu is 1, but --micro_batch is 2",
      "f: line 1 column 60: gradient_clipping is 0, but --clip is 0.5",
      "f: line 3 column 27: optimizer.type is \"Adam\" (AdamW's decay), but --optimizer is "
      "\"adam\"",
      "f: line 3 column 52: optimizer.params.lr is 1e-5, but --learning_rate is 0.001",
      "f: line 3 column 67: optimizer.params.betas[0] is 0.9, but --beta1 is 0.8",
      "f: line 4 column 25: fp16.enabled is true, but --dtype is \"bf16\"",
      "f: line 5 column 27: scheduler.type is \"WarmupLR\", but --schedule is \"linear\"",
      "f: line 6 column 36: zero_optimization.stage is 2, but --stage is 3",
      "f: line 6 column 70: zero_optimization.stage3_prefetch_bucket_size is 0, but --prefetch is "
      "2"};
  CHECK(problems == wanted);
  // The same values are no contradiction, and what the file leaves out is the caller's.
  context.given["optimizer"].value = std::string("adamw");
  context.given.erase("scheduler.type");
  const DeepSpeedConfig same = Parsed(R"({
    "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 5e-1, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3}})",
                                      context);
  CHECK(same.config.learning_rate == 1e-3);
  CHECK(same.config.beta1 == 0.8);
  CHECK(same.config.prefetch == 2);
}

TEST_CASE("DeepSpeedConfig: numbers are exact whatever their spelling, and nothing is cut") {
  const auto bucket = [](const std::string& value) {
    return With("\"zero_optimization\": {\"reduce_bucket_size\": " + value + "}");
  };
  for (const char* value : {"5e8", "500000000.0", "500000000", "\"5e8\""}) {
    CHECK(Parsed(bucket(value)).config.reduce_bucket_size == 500'000'000);
  }
  CHECK(HasNote(Parsed(bucket("\"5e8\"")), "zero_optimization.reduce_bucket_size is \"5e8\""));
  const std::string key = "zero_optimization.reduce_bucket_size is ";
  Refused(bucket("5e-1"), {key + "5e-1, which has a fraction; it must be a whole number"});
  Refused(bucket("3774873.6"), {key + "3774873.6, which has a fraction"});
  Refused(bucket("1e20"), {key + "1e20, which is out of range"});
  Refused(bucket("1e30"), {key + "1e30, which is out of range; it must be a whole number up to "
                                 "9223372036854775807"});
  Refused(bucket("-5e8"), {key + "-5e8; it must be a whole number of at least 1"});
  Refused(bucket("0"), {key + "0; it must be"});
  Refused(bucket("true"), {key + "true; it must be a whole number"});
  Refused(bucket("[]"), {key + "[]; it must be a whole number"});
  // The same holds for keys that are ignored.
  Refused(With("\"zero_optimization\": {\"sub_group_size\": 0.5}"),
          {"zero_optimization.sub_group_size is 0.5, which has a fraction"});
  const auto rate = [](const std::string& value) {
    return With("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": " + value + "}}");
  };
  for (const char* locale : {"C", "de_DE.UTF-8"}) {
    (void)std::setlocale(LC_ALL, locale);  // where it is installed
    CHECK(Parsed(rate("\"2e-5\"")).config.learning_rate == 2e-5);
    CHECK_THAT(Parsed(rate("1.5e-5")).resolved, ContainsSubstring("\"lr\": 1.5e-05"));
  }
  (void)std::setlocale(LC_ALL, "C");
  for (const char* value : {"\"2e-5x\"", "\"\"", "\" 2e-5\"", "\"2,5\"", "\"nan\"", "NaN",
                            "Infinity", "1e400", "-1", "true", "{}"}) {
    Refused(rate(value), {"optimizer.params.lr is ", "it must be"});
  }
  CHECK(Parsed(With("\"prescale_gradients\": \"true\"")).config.gradient_predivide_factor == 4);
  Refused(With("\"prescale_gradients\": 1"), {"prescale_gradients is 1; it must be true or false"});
}

TEST_CASE("DeepSpeedConfig: unknown keys are named with their path and the nearest known one") {
  Refused("{\"train_batch_size\": 4,\n \"gradient_cliping\": 1.0}",
          {"f: line 2 column 2: unknown key \"gradient_cliping\"; the nearest is "
           "\"gradient_clipping\""});
  Refused(With("\"gradient_accumulation_steps \": 2"),
          {"\"gradient_accumulation_steps \"", "\"gradient_accumulation_steps\""});
  Refused(With("\"fp16\": {\"loss_scale_power\": 3}"), {"\"fp16.loss_scale_power\"", "\"fp16."});
  Refused(With("\"bf16\": {\"hysteresis\": 3}"),
          {"\"bf16.hysteresis\"; \"hysteresis\" belongs in fp16"});
  Refused(With("\"zero_optimization\": {\"aio\": {}}"), {"\"aio\" belongs at the top"});
  Refused(With("\"stage\": 3"), {"\"stage\" belongs in zero_optimization"});
  Refused(With("\"zero_optimization\": {\"stage3_param_persitence_threshold\": 1}"),
          {"\"zero_optimization.stage3_param_persistence_threshold\""});
  Refused(With("\"zero_optimization\": {\"offload_param\": {\"device\": \"none\", \"fast\": 1}}"),
          {"\"zero_optimization.offload_param.fast\""});
  Refused(With("\"zero_optimization.stage\": 3"), {"unknown key \"zero_optimization.stage\""});
  const DeepSpeedConfig config =
      Parsed(With("\"communication\": {\"x\": 1}, \"_comment\": 1, \"optimizer\": {\"type\": "
                  "\"AdamW\", \"_why\": 2}, \"fp16\": {\"_off\": null}"));
  REQUIRE(config.notes.size() == 1);
  CHECK(config.notes[0] ==
        "unknown key \"communication\"; the nearest is "
        "\"communication_data_type\"; it is ignored");
}

TEST_CASE("DeepSpeedConfig: what may be meant as a key that changes results is refused") {
  const std::vector<std::pair<std::string, std::string>> top = {
      {"gradient_clip", "gradient_clipping"},
      {"grad_clip", "gradient_clipping"},
      {"clip_grad", "gradient_clipping"},
      {"clip", "gradient_clipping"},
      {"gradient_clipping_norm", "gradient_clipping"},
      {"batch_size", "train_batch_size"},
      {"train_batch", "train_batch_size"},
      {"micro_batch_size", "train_micro_batch_size_per_gpu"},
      {"micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu"},
      {"gradient_accumulation", "gradient_accumulation_steps"},
      {"accumulation_steps", "gradient_accumulation_steps"},
      {"predivide_factor", "gradient_predivide_factor"},
      {"communication_dtype", "communication_data_type"},
      {"learning_rate", "optimizer.params.lr"},
      {"dtype", "bf16.enabled"},
      {"warmup_steps", "scheduler.params.warmup_num_steps"},
      {"scale_window", "fp16.loss_scale_window"},
      {"sequence_parallel", "sequence_parallel_size"}};
  for (const auto& [key, meant] : top) {
    Refused(With("\"" + key + "\": 1"),
            {"unknown key \"" + key + "\"; the nearest is \"" + meant + "\""});
  }
  Refused(With("\"max_grad_norm\": 1"),
          {"unknown key \"max_grad_norm\": the limit of the norm is the key gradient_clipping"});
  Refused(With("\"zero\": {\"stage\": 3}"), {"the nearest is \"zero_optimization\""});
  Refused(With("\"data_types\": {\"accum_dtype\": \"bf16\"}"),
          {"the nearest is \"data_types.grad_accum_dtype\""});
  // DeepSpeed hands these to constructors, which refuse them.
  Refused(With("\"optimizer\": {\"type\": \"Adam\", \"params\": {\"beta1\": 0.8}}"),
          {"\"optimizer.params.beta1\"; the nearest is \"optimizer.params.betas\""});
  Refused(With("\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"peak\": 0.8}}"),
          {"unknown key \"scheduler.params.peak\""});
  for (const char* other : {"\"communication\": {\"x\": 1}", "\"project\": \"x\"", "\"seed\": 5",
                            "\"gradient_checkpointing\": true"}) {
    CAPTURE(other);
    CHECK(HasNote(Parsed(With(other)), "; it is ignored"));
  }
}

TEST_CASE("DeepSpeedConfig: a key in two spellings, or an old and a new one, is refused") {
  Refused(With("\"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": true}"),
          {"bf16 and bfloat16 are one key"});
  Refused(With(R"("zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1,
                                        "max_live_parameters": 1})"),
          {"zero_optimization.stage3_max_live_parameters and "
           "zero_optimization.max_live_parameters are one key"});
  Refused(With(R"("zero_optimization": {"stage": 3,
      "stage3_gather_fp16_weights_on_model_save": true,
      "stage3_gather_16bit_weights_on_model_save": true})"),
          {"are one key in two spellings"});
  Refused(With(R"("zero_optimization": {"stage": 2, "cpu_offload": false,
                                        "offload_optimizer": {"device": "cpu"}})"),
          {"zero_optimization.cpu_offload is the old form of zero_optimization.offload_optimizer"});
  const DeepSpeedConfig alias = Parsed(With("\"bfloat16\": {\"enabled\": true}"));
  CHECK(alias.dtype == DType::kBF16);
  CHECK(HasNote(alias, "bfloat16 is taken as bf16"));
}

TEST_CASE("DeepSpeedConfig: whole weights may be saved in stage 3 unless the file forbids it") {
  const auto may = [](const std::string& key) {
    return Parsed(With("\"zero_optimization\": {\"stage\": 3" + key + "}"))
        .config.gather_16bit_weights_on_model_save;
  };
  CHECK(may(""));
  CHECK(may(", \"stage3_gather_16bit_weights_on_model_save\": true"));
  CHECK(may(", \"stage3_gather_16bit_weights_on_model_save\": \"auto\""));
  CHECK_FALSE(may(", \"stage3_gather_16bit_weights_on_model_save\": false"));
  CHECK_FALSE(may(", \"stage3_gather_fp16_weights_on_model_save\": false"));
}

TEST_CASE("DeepSpeedConfig: sections of precision give the dtype, and two at once are refused") {
  const auto dtype = [](const std::string& body) { return Parsed(With(body)).dtype; };
  CHECK(dtype("") == DType::kF32);
  CHECK(dtype("\"fp16\": {\"enabled\": true}") == DType::kF16);
  CHECK(dtype("\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": false}") == DType::kBF16);
  CHECK(dtype("\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": \"auto\"}") == DType::kBF16);
  CHECK(dtype("\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": true}") == DType::kF16);
  CHECK(dtype("\"fp16\": {\"enabled\": \"auto\"}") == DType::kF32);
  CHECK(dtype("\"fp16\": {}, \"bf16\": {}") == DType::kF32);
  Refused(With("\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}"),
          {"fp16.enabled and bf16.enabled are both true"});
  Refused(With("\"amp\": {\"enabled\": true}"), {"amp does not exist here", "fp16 or bf16"});
  CHECK(Parsed(With("\"amp\": {\"enabled\": false}")).notes.empty());
  Refused(With("\"data_types\": {\"param_dtype\": \"bf16\"}"), {"param_dtype is bf16", "fp32"});
  Refused(With("\"data_types\": {\"grad_accum_dtype\": \"bf16\"}"), {"grad_accum_dtype is bf16"});
  Refused(With("\"communication_data_type\": \"int8\""), {"\"int8\"", "fp32 or fp16 or bf16"});
  const DeepSpeedConfig master =
      Parsed(With("\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}"));
  CHECK(master.config.master == MasterKind::kNone);
  CHECK(HasNote(master, "rounded stochastically"));
}

TEST_CASE("DeepSpeedConfig: bf16 gradients are checked unless the file says otherwise") {
  const auto bf16 = [](const std::string& keys) {
    return With("\"bf16\": {\"enabled\": true" + keys + "}");
  };
  CHECK(Parsed(bf16("")).config.check_overflow);
  CHECK(Parsed(bf16(", \"check_grad_overflow\": true")).config.check_overflow);
  const DeepSpeedConfig unchecked = Parsed(bf16(", \"check_grad_overflow\": false"));
  CHECK(!unchecked.config.check_overflow);
  CHECK(unchecked.notes.empty());
  // What is not in bf16 is checked, as in DeepSpeed.
  const DeepSpeedConfig fp32 = Parsed(With("\"bf16\": {\"check_grad_overflow\": false}"));
  CHECK(fp32.config.check_overflow);
  CHECK(HasNote(fp32, "bf16.check_grad_overflow is ignored: the run is in fp32"));
  Refused(bf16(", \"check_grad_overflow\": 2"), {"check_grad_overflow", "true or false"});
}

TEST_CASE("DeepSpeedConfig: loss scales are dynamic or fixed, and wrong ones are refused") {
  const auto fp16 = [](const std::string& keys) {
    return With("\"fp16\": {\"enabled\": true" + keys + "}");
  };
  const LossScale plain = Parsed(fp16("")).config.loss_scale;
  CHECK(plain.kind == LossScaling::kDynamic);
  CHECK(plain.scale == 65536);
  CHECK(plain.window == 1000);
  CHECK(plain.hysteresis == 2);
  CHECK(!plain.consecutive_hysteresis);
  CHECK(plain.minimum == 1);
  const DeepSpeedConfig set = Parsed(
      fp16(", \"loss_scale\": 0, \"initial_scale_power\": 127, \"loss_scale_window\": 4, "
           "\"hysteresis\": 3, \"consecutive_hysteresis\": true, \"min_loss_scale\": 1e-10"));
  CHECK(set.config.loss_scale.scale == std::ldexp(1.0, 127));
  CHECK(set.config.loss_scale.window == 4);
  CHECK(set.config.loss_scale.hysteresis == 3);
  CHECK(set.config.loss_scale.consecutive_hysteresis);
  CHECK(set.config.loss_scale.minimum == 1e-10);
  // The scale may come down from its start to its minimum before the run is stopped.
  CHECK(set.config.max_consecutive_skips == 127 + 34 + 3 + 1);
  CHECK(Parsed(fp16(", \"initial_scale_power\": 0, \"min_loss_scale\": 0.5"))
            .config.loss_scale.scale == 1);
  const LossScale fixed = Parsed(fp16(", \"loss_scale\": 1024")).config.loss_scale;
  CHECK(fixed.kind == LossScaling::kStatic);
  CHECK(fixed.scale == 1024);
  for (const char* wrong :
       {"\"loss_scale\": Infinity", "\"loss_scale\": NaN", "\"loss_scale\": -1",
        "\"loss_scale\": 1e400", "\"loss_scale\": 1e39", "\"loss_scale\": true",
        "\"initial_scale_power\": 200", "\"initial_scale_power\": 128",
        "\"initial_scale_power\": -1", "\"loss_scale_window\": 0", "\"hysteresis\": 0",
        "\"min_loss_scale\": 0", "\"min_loss_scale\": -1", "\"min_loss_scale\": 65537"}) {
    const std::string name = std::string(wrong).substr(1, std::string(wrong).find(':') - 2);
    Refused(fp16(absl::StrCat(", ", wrong)), {"fp16." + name + " is ", "must be"});
  }
}

TEST_CASE("DeepSpeedConfig: optimizers have DeepSpeed's meanings of their names") {
  const auto optimizer = [](const std::string& type, const std::string& params = "") {
    return With("\"optimizer\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}");
  };
  const auto kind = [&](const std::string& type, const std::string& params = "") {
    return Parsed(optimizer(type, params)).config.optimizer;
  };
  CHECK(kind("Adam") == OptimizerKind::kAdamW);
  CHECK(kind("adam", "\"adam_w_mode\": true, \"torch_adam\": true") == OptimizerKind::kAdamW);
  CHECK(kind("Adam", "\"adam_w_mode\": false") == OptimizerKind::kAdam);
  CHECK(kind("ADAMW") == OptimizerKind::kAdamW);
  CHECK(kind("AdamW", "\"adam_w_mode\": false") == OptimizerKind::kAdamW);
  CHECK(HasNote(Parsed(optimizer("AdamW", "\"adam_w_mode\": false")), "adam_w_mode is false"));
  CHECK(!Parsed(optimizer("Adam", "\"bias_correction\": false")).config.bias_correction);
  const Config sgd =
      Parsed(optimizer("SGD", "\"momentum\": 0.5, \"nesterov\": true, \"lr\": 1")).config;
  CHECK(sgd.optimizer == OptimizerKind::kSgd);
  CHECK(sgd.momentum == 0.5);
  CHECK(sgd.nesterov);
  const Config lion = Parsed(optimizer("Lion")).config;
  CHECK(lion.optimizer == OptimizerKind::kLion);
  CHECK(lion.beta1 == 0.9);
  CHECK(lion.beta2 == 0.99);
  for (const char* type : {"Lamb", "OneBitAdam", "Muon", "Adagrad"}) {
    Refused(optimizer(type),
            {absl::StrCat("optimizer.type is \"", type, "\""), "AdamW or Adam or SGD or Lion"});
  }
  Refused(With("\"optimizer\": {\"params\": {}}"), {"optimizer.type is missing"});
  Refused(optimizer("AdamW", "\"momentum\": 0.5"), {"momentum is no parameter of AdamW"});
  Refused(optimizer("SGD", "\"betas\": [0, 0]"), {"betas is no parameter of SGD"});
  Refused(optimizer("SGD", "\"nesterov\": true"), {"nesterov is true", "momentum is 0"});
  Refused(optimizer("AdamW", "\"betas\": [0.9]"), {"betas is [0.9]", "a list of 2 numbers"});
  Refused(optimizer("AdamW", "\"betas\": [0.9, 1]"), {"betas[1] is 1", "below 1"});
  Refused(optimizer("AdamW", "\"eps\": 0"), {"eps is 0", "positive"});
  Refused(optimizer("AdamW", "\"max_grad_norm\": 1.0"),
          {"max_grad_norm is 1.0", "gradient_clipping"});
  Refused(optimizer("AdamW", "\"amsgrad\": true"), {"amsgrad is true"});
  CHECK(Parsed(optimizer("AdamW", "\"max_grad_norm\": 0, \"amsgrad\": false")).notes.empty());
  Refused("{\"train_batch_size\": 4, \"gradient_clipping\": -1}", {"gradient_clipping is -1"});
}

TEST_CASE("DeepSpeedConfig: schedulers become schedules of the applied count") {
  const auto scheduler = [](const std::string& type, const std::string& params) {
    return With(
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}},\n"
        "\"scheduler\": {\"type\": \"" +
        type + "\", \"params\": {" + params + "}}");
  };
  const Config warmup = Parsed(scheduler("WarmupLR",
                                         "\"warmup_num_steps\": 4, \"warmup_type\": "
                                         "\"linear\", \"warmup_min_lr\": 0.25"))
                            .config;
  CHECK(warmup.schedule(1) == 0.25);
  CHECK(warmup.schedule(3) == 0.375);
  CHECK(warmup.schedule(5) == 0.5);  // the optimizer's rate
  const Config decay = Parsed(scheduler("WarmupDecayLR",
                                        "\"total_num_steps\": 20, "
                                        "\"warmup_num_steps\": 4, \"warmup_max_lr\": 1"))
                           .config;
  CHECK(decay.schedule(5) == 1);
  CHECK(decay.schedule(6) == 0.9375);
  CHECK(decay.schedule(21) == 0);
  const Config cosine = Parsed(scheduler("WarmupCosineLR",
                                         "\"total_num_steps\": 12, "
                                         "\"warmup_num_steps\": 4"))
                            .config;
  CHECK(cosine.schedule(1) == 0);
  CHECK(cosine.schedule(12) == Approx(0.5e-4));
  const Config cycle = Parsed(scheduler("OneCycle",
                                        "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.2, "
                                        "\"cycle_first_step_size\": 10"))
                           .config;
  CHECK(cycle.schedule(11) == Approx(0.2));
  CHECK(cycle.beta1_schedule(11) == Approx(0.8));
  CHECK(cycle.beta2 == 0.99);
  const Config fixed = Parsed(scheduler("OneCycle",
                                        "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.2, "
                                        "\"cycle_momentum\": false"))
                           .config;
  CHECK(!fixed.beta1_schedule);
  CHECK(fixed.beta2 == 0.999);
  const Config range = Parsed(scheduler("LRRangeTest",
                                        "\"lr_range_test_min_lr\": 0.5, "
                                        "\"lr_range_test_step_size\": 2, "
                                        "\"lr_range_test_step_rate\": 4"))
                           .config;
  CHECK(range.schedule(2) > range.schedule(1));
  Refused(scheduler("Cosine", ""), {"scheduler.type is \"Cosine\"", "WarmupLR or WarmupDecayLR"});
  Refused(scheduler("WarmupLR", "\"total_num_steps\": 3"),
          {"total_num_steps is no parameter of WarmupLR"});
  Refused(scheduler("WarmupDecayLR", ""), {"total_num_steps is missing"});
  Refused(scheduler("WarmupDecayLR", "\"total_num_steps\": 4, \"warmup_num_steps\": 5"),
          {"scheduler: ", "warmup_num_steps"});
  Refused(scheduler("WarmupLR", "\"warmup_num_steps\": 1.5"), {"warmup_num_steps is 1.5"});
  Refused(scheduler("WarmupLR", "\"warmup_num_steps\": -1"), {"warmup_num_steps is -1"});
  Refused(scheduler("WarmupLR", "\"warmup_type\": \"cubic\""), {"\"cubic\"", "log or linear"});
  Refused(With("\"scheduler\": {}"), {"scheduler.type is missing"});
}

TEST_CASE("DeepSpeedConfig: schedules that do not fit the run are noted and mistakes refused") {
  const auto scheduler = [](const std::string& type, const std::string& params) {
    return With("\"scheduler\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}");
  };
  ConfigContext context = Context();
  context.total_steps = 20;
  const auto notes = [&](const std::string& type, const std::string& params) {
    return Parsed(scheduler(type, params), context).notes;
  };
  const std::string ends = "scheduler.params.warmup_num_steps is 21: the run ends after 20 steps";
  CHECK(HasNote(Parsed(scheduler("WarmupLR", "\"warmup_num_steps\": 21"), context), ends));
  CHECK(HasNote(Parsed(scheduler("WarmupLR", ""), context), "warmup_num_steps is 1000: the run"));
  CHECK(notes("WarmupLR", "\"warmup_num_steps\": 20").empty());
  for (const char* type : {"WarmupDecayLR", "WarmupCosineLR"}) {
    CAPTURE(type);
    const std::string rest = ", \"warmup_num_steps\": 4";
    CHECK(HasNote(Parsed(scheduler(type, "\"total_num_steps\": 19" + rest), context),
                  "scheduler.params.total_num_steps is 19, but the run has 20 steps"));
    CHECK(notes(type, "\"total_num_steps\": 20" + rest).empty());
    CHECK(notes(type, "\"total_num_steps\": 21" + rest).empty());
    CHECK(HasNote(
        Parsed(scheduler(type, "\"total_num_steps\": 30, \"warmup_num_steps\": 21"), context),
        ends));
  }
  Refused(scheduler("WarmupLR", "\"warmup_min_lr\": 0.5"),
          {"WarmupLR: warmup_min_lr is 0.5: it must be at most warmup_max_lr, 0.001"});
  Refused(scheduler("OneCycle", "\"cycle_min_lr\": 0.5, \"cycle_max_lr\": 0.25"),
          {"OneCycle: cycle_min_lr is 0.5: it must be at most cycle_max_lr, 0.25"});
  Refused(scheduler("WarmupCosineLR", "\"total_num_steps\": 2000, \"cos_min_ratio\": 2"),
          {"cos_min_ratio is 2; it must be from 0 to 1"});
}

TEST_CASE("DeepSpeedConfig: stages and other conflicts are refused by name") {
  const auto zero = [](const std::string& keys) { return With("\"zero_optimization\": " + keys); };
  Refused(zero("{\"stage\": 4}"), {"zero_optimization.stage is 4; it must be a whole number from 0 "
                                   "to 3"});
  CHECK(Parsed(zero("true")).config.stage == 1);
  CHECK(Parsed(zero("{\"stage\": true}")).config.stage == 1);
  CHECK(HasNote(Parsed(zero("{\"stage\": true}")), "zero_optimization.stage is true, an old form"));
  CHECK(Parsed(zero("false")).config.stage == 0);
  Refused(zero("3"), {"zero_optimization is 3; it must be an object"});
  CHECK(Parsed(zero("{\"stage3_prefetch_bucket_size\": 0}")).config.prefetch == 0);
  CHECK(Parsed(zero("{\"stage3_prefetch_bucket_size\": 5}")).config.prefetch == 1);
  CHECK(Parsed(With("\"gradient_predivide_factor\": 2.5")).config.gradient_predivide_factor == 2.5);
  CHECK(Parsed(With("\"prescale_gradients\": true")).config.gradient_predivide_factor == 4);
  Refused(With("\"prescale_gradients\": true, \"gradient_predivide_factor\": 2"),
          {"prescale_gradients", "gradient_predivide_factor is 2"});
  Refused(With("\"gradient_predivide_factor\": 0"), {"gradient_predivide_factor is 0"});
  Refused(With("\"gradient_allreduce_op\": \"sum\""), {"gradient_allreduce_op is \"sum\""});
  CHECK(Parsed(With("\"gradient_allreduce_op\": \"MEAN\"")).notes.empty());
  Refused(With("\"elasticity\": {\"enabled\": true}"), {"elasticity does not exist here"});
  Refused(With("\"compression_training\": {\"weights\": {\"shared\": {\"enabled\": true}}}"),
          {"compression_training"});
  Refused(With("\"sparse_attention\": {\"mode\": \"fixed\"}"), {"sparse_attention"});
  Refused(With("\"steps_per_print\": 0"), {"steps_per_print is 0"});
}

TEST_CASE("DeepSpeedConfig: all problems of a file are in one error, in the order of its lines") {
  const std::vector<std::string> problems = Problems(R"({
  "gradient_clipping": -1
  "train_batch_size": 7,
  "zero_optimization": {"stage": 5, "stage3_prefetch": 3},
  "gradient_clipping": 2,
  "fp16": {"enabled": true, "hysteresis": 0}, "bf16": {"enabled": true}
})");
  const std::vector<std::string> wanted = {
      "f: line 2 column 24: gradient_clipping is -1",
      "f: line 3 column 3: a comma is missing before \"train_batch_size\"",
      "f: line 3 column 23: train_batch_size is 7",
      "f: line 4 column 34: zero_optimization.stage is 5",
      "f: line 4 column 37: unknown key \"zero_optimization.stage3_prefetch\"",
      "f: line 5 column 3: key \"gradient_clipping\" occurs twice; first at line 2 column 3",
      "f: line 6 column 43: fp16.hysteresis is 0",
      "f: line 6 column 67: fp16.enabled and bf16.enabled are both true"};
  REQUIRE(problems.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) CHECK_THAT(problems[i], ContainsSubstring(wanted[i]));
}

TEST_CASE("DeepSpeedConfig: what is no configuration at all is refused") {
  Refused("[1]", {"f: line 1 column 1: the document must be an object"});
  Refused("{\"a\": 1}\n{}", {"f: line 2 column 1: something follows the end"});
  Refused(std::string(200'000, '['), {"nests more than 64 levels"});
  Refused("{\"" + std::string(1 << 20, 'x') +
              "\": 1, \"train_batch_size\": 4, "
              "\"zero_optimization\": {\"y\": 1}}",
          {"zero_optimization.y"});
}

TEST_CASE("DeepSpeedConfig: a text that is cut or changed is read or refused, line by line") {
  const std::string whole = Parsed(With(R"("fp16": {"enabled": true}, "optimizer": {"type": "Lion"},
    "scheduler": {"type": "WarmupLR"}, "zero_optimization": {"stage": 3})"))
                                .resolved;
  const auto check = [](const std::string& text) {
    const auto config = ParseDeepSpeedConfig(text, Context(), "f");
    if (config.ok()) return true;
    bool right = absl::IsInvalidArgument(config.status());
    for (const auto line : absl::StrSplit(config.status().message(), '\n')) {
      right = right && absl::StartsWith(line, "f: ") && line.size() > 20;
    }
    return right;
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    if (!check(whole.substr(0, i))) FAIL_CHECK("cut to " << i << " bytes");
    for (const char byte : {'"', '{', '}', '[', ',', '9', '-', '.', 'e', '\\', '\0', '\xFF'}) {
      std::string changed = whole;
      changed[i] = byte;
      if (!check(changed)) FAIL_CHECK("byte " << i << " is " << byte);
    }
  }
}

TEST_CASE("DeepSpeedConfig: paths that are no configuration files are told apart") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& name, const std::string& text, bool write = true) {
    if (write) std::ofstream(folder.File(name)) << text;
    const auto config = ReadDeepSpeedConfig(folder.File(name), Context());
    CHECK(absl::IsInvalidArgument(config.status()));
    const std::string prefix = folder.File(name) + ": ";
    const std::string all(config.status().message());
    CHECK(absl::StartsWith(all, prefix));
    return all.substr(std::min(prefix.size(), all.size()));
  };
  CHECK(message("absent", "", false) == "no such file");
  CHECK(message("", "", false) == "is a folder, not a file");
  CHECK(message("empty", "") == "is empty");
  CHECK(message("blank", "\n") == "line 2 column 1: there is no value, only blanks and comments");
  CHECK(message("words", "{\n \"train_batch_size\": <your batch size>\n}") ==
        "line 2 column 22: expected a value, not '<'");
  CHECK_THAT(message("large", std::string(17 << 20, ' ')), ContainsSubstring("16777216 bytes"));
  std::ofstream(folder.File("good")) << "{\"train_batch_size\": 8}";
  const auto good = ReadDeepSpeedConfig(folder.File("good"), Context());
  REQUIRE_OK(good.status());
  CHECK(good->micro_batch_size == 2);
}

TEST_CASE("DeepSpeedConfig: an auto scheduler is the caller's own schedule or a DeepSpeed type") {
  ConfigContext context = Context();
  context.given["scheduler.type"] = {"--schedule", std::string("cosine")};
  const DeepSpeedConfig own = Parsed(
      With("\"scheduler\": {\"type\": \"auto\", \"params\": {\"warmup_num_steps\": \"auto\"}}"),
      context);
  CHECK(!own.config.schedule);
  CHECK(own.scheduler.empty());
  CHECK_THAT(own.resolved, !ContainsSubstring("scheduler"));
  CHECK(HasNote(own, "scheduler.type is left to --schedule, \"cosine\""));
  CHECK(!Parsed(With("\"scheduler\": {\"params\": {}}"), context).config.schedule);
  Refused(With("\"scheduler\": {\"type\": \"auto\", \"params\": {\"warmup_num_steps\": 5}}"),
          {"scheduler.params.warmup_num_steps is no parameter of \"cosine\", which --schedule is"},
          context);
  context.given["scheduler.type"].value = std::string("warmuplr");
  const DeepSpeedConfig warmup = Parsed(
      With("\"scheduler\": {\"type\": \"auto\", \"params\": {\"warmup_num_steps\": 5}}"), context);
  CHECK(warmup.scheduler == "WarmupLR");
  CHECK(warmup.config.schedule(1) == 0);
  CHECK(warmup.config.schedule(6) == 1e-3);
  for (const char* type : {"\"auto\"", "null"}) {
    const std::vector<std::string> problems = Problems(With(absl::StrCat(
        "\"scheduler\": {\"type\": ", type, ", \"params\": {\"warmup_num_steps\": 5}}")));
    REQUIRE(problems.size() == 1);
    CHECK_THAT(problems[0], ContainsSubstring("scheduler.type is "));
    CHECK_THAT(problems[0], ContainsSubstring("it must be WarmupLR, WarmupDecayLR, "));
  }
  Refused(With("\"scheduler\": {\"type\": \"auto\"}"),
          {"f: line 2 column 23: scheduler.type is \"auto\", and nothing says which"});
}

TEST_CASE("DeepSpeedConfig: a caller's value is held to the range that the file's has") {
  const auto refused = [](const std::string& path, const CallerValue& value,
                          const std::string& words, const std::string& body = "") {
    CAPTURE(path);
    ConfigContext context = Context();
    context.given[path] = value;
    Refused("{\"gradient_clipping\": \"auto\", \"train_batch_size\": 8" + body + "}", {words},
            context);
  };
  refused("train_micro_batch_size_per_gpu", {"--micro_batch", int64_t{0}},
          "--micro_batch is 0; it must be a whole number from 1 to 1000000000");
  refused("gradient_accumulation_steps", {"--accumulation", int64_t{-1}},
          "--accumulation is -1; it must be");
  refused("zero_optimization.stage", {"--stage", int64_t{4}}, "--stage is 4; it must be");
  refused("gradient_clipping", {"--clip", -1.0},
          "line 1 column 23: --clip is -1; it must be 0 (off) or positive");
  refused("optimizer.params.eps", {"--epsilon", 0.0}, "--epsilon is 0; it must be positive");
  refused("optimizer.params.beta2", {"--beta2", 1.0}, "--beta2 is 1; it must be at least 0");
  refused("data_types.grad_accum_dtype", {"--accumulation_dtype", std::string("int8")},
          "--accumulation_dtype is \"int8\"; it must be fp32 or fp16 or bf16");
  refused("optimizer", {"--optimizer", std::string("lamb")},
          "--optimizer is \"lamb\"; it must be adamw, adam, sgd or lion");
  refused("dtype", {"--dtype", std::string("fp8")},
          "--dtype is \"fp8\"; it must be fp32, fp16 or bf16");
  refused("master", {"--master", std::string("fp64")},
          "--master is \"fp64\"; it must be fp32, split or none");
  refused("prefetch", {"--prefetch", int64_t{1} << 32},
          "--prefetch is 4294967296; it must be a whole number from 0 to 2147483647");
  refused("optimizer.params.lr", {"--learning_rate", int64_t{1}},
          "--learning_rate is 1, which is not of the key's type");
}

TEST_CASE("DeepSpeedConfig: a world of no ranks is refused before anything is divided by it") {
  for (const int64_t ranks : {int64_t{0}, int64_t{-2}}) {
    Refused("{\"train_batch_size\": 8, \"prescale_gradients\": true}",
            {absl::StrCat("f: the world size is ", ranks, ", from --ranks; it must be at least 1")},
            Context(ranks));
  }
  Refused("{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 4}",
          {"8 is no multiple of 4 x 9223372036854775807"},
          Context(std::numeric_limits<int64_t>::max()));
}

TEST_CASE("DeepSpeedConfig: the mode of Adam's decay counts where the caller has the optimizer") {
  const auto optimizer = [](const std::string& type, const std::string& params) {
    return With("\"optimizer\": {" + type + "\"params\": {" + params + "}}");
  };
  ConfigContext context = Context();
  context.given["optimizer"] = {"--optimizer", std::string("adam")};
  const std::string coupled = "\"adam_w_mode\": false";
  for (const char* type : {"\"type\": \"auto\", ", ""}) {
    context.given["optimizer"].value = std::string("adam");
    CHECK(Parsed(optimizer(type, coupled), context).config.optimizer == OptimizerKind::kAdam);
    Refused(optimizer(type, "\"adam_w_mode\": true"),
            {"optimizer.params.adam_w_mode is true, but --optimizer is \"adam\""}, context);
    context.given["optimizer"].value = std::string("adamw");
    CHECK(Parsed(optimizer(type, "\"adam_w_mode\": true"), context).config.optimizer ==
          OptimizerKind::kAdamW);
    Refused(optimizer(type, coupled),
            {"optimizer.params.adam_w_mode is false, but --optimizer is \"adamw\""}, context);
    context.given["optimizer"].value = std::string("lion");
    Refused(optimizer(type, coupled), {"adam_w_mode is no parameter of Lion"}, context);
  }
  const DeepSpeedConfig automatic = Parsed(optimizer("\"type\": \"auto\", ", coupled));
  CHECK(automatic.config.optimizer == OptimizerKind::kAdamW);
  CHECK(HasNote(automatic, "optimizer.params.adam_w_mode is false, but type AdamW"));
}

TEST_CASE("DeepSpeedConfig: null and other spellings of enabled do not pass without a word") {
  const DeepSpeedConfig config =
      Parsed(With("\"zero_optimization\": {\"stage\": null}, \"optimizer\": null, \"_why\": null"));
  CHECK(config.config.stage == 0);
  REQUIRE(config.notes.size() == 2);
  CHECK(HasNote(config, "zero_optimization.stage is null: taken as left out"));
  CHECK(HasNote(config, "optimizer is null: taken as left out"));
  for (const char* on : {"1", "\"yes\"", "\"true\"", "[true]", "{}"}) {
    Refused(With(absl::StrCat("\"amp\": {\"enabled\": ", on, "}")), {"amp does not exist here"});
  }
  Refused(With("\"compression_training\": {\"groups\": [{\"enabled\": 1}]}"),
          {"compression_training does not exist here"});
  for (const char* off : {"false", "\"false\"", "null", "\"auto\""}) {
    CHECK(Parsed(With(absl::StrCat("\"amp\": {\"enabled\": ", off, "}"))).notes.empty());
  }
}

std::string OneCycleWith(const std::string& params, const std::string& optimizer = "") {
  return With(absl::StrCat(
      "\"optimizer\": {\"type\": \"AdamW\", \"params\": {", optimizer,
      "}}, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.1, "
      "\"cycle_max_lr\": 0.2, \"cycle_first_step_size\": 5",
      params, "}}"));
}

TEST_CASE("DeepSpeedConfig: OneCycle says that it takes the place of betas") {
  const std::string betas = "\"betas\": [0.5, 0.95]";
  const DeepSpeedConfig config = Parsed(OneCycleWith("", betas));
  CHECK(config.config.beta1 == 0.9);
  CHECK(config.config.beta2 == 0.99);
  CHECK_THAT(config.resolved, ContainsSubstring("\"betas\": [0.9, 0.99]"));
  CHECK(HasNote(config, "optimizer.params.betas is [0.9, 0.99], not [0.5, 0.95]"));
  CHECK(Parsed(config.resolved).resolved == config.resolved);
  const DeepSpeedConfig fixed = Parsed(OneCycleWith(", \"cycle_momentum\": false", betas));
  CHECK_THAT(fixed.resolved, ContainsSubstring("\"betas\": [0.5, 0.95]"));
  CHECK(!HasNote(fixed, "betas"));
  ConfigContext context = Context();
  context.given["optimizer.params.beta2"] = {"--beta2", 0.95};
  Refused(OneCycleWith(""), {"OneCycle sets beta2 to 0.99", "--beta2 is 0.95", "cycle_momentum"},
          context);
  CHECK(Parsed(OneCycleWith(", \"cycle_momentum\": false"), context).config.beta2 == 0.95);
  context.given["optimizer.params.beta2"].value = 0.99;
  CHECK(Parsed(OneCycleWith(""), context).config.beta2 == 0.99);
  context.given["optimizer.params.beta1"] = {"--beta1", 0.8};
  Refused(OneCycleWith(""), {"OneCycle drives beta1", "--beta1 is 0.8"}, context);
}

TEST_CASE("DeepSpeedConfig: a decay that takes beta1 out of its range in the run is refused") {
  // The cycle is 10 updates long; then beta1 is 0.9 (1 + rate n / 2), and 0.75 (1 - n / 2).
  const std::string up = OneCycleWith(", \"decay_step_size\": 2, \"decay_mom_rate\": 0.1");
  const std::string down = OneCycleWith(
      ", \"decay_step_size\": 2, \"decay_mom_rate\": -1, \"cycle_max_mom\": 0.75, "
      "\"cycle_min_mom\": 0.5");
  ConfigContext context = Context();
  context.total_steps = 13;
  CHECK(Parsed(up, context).config.beta1_schedule(13) == Approx(0.99));
  CHECK(Parsed(down, context).config.beta1_schedule(13) == 0);
  context.total_steps = 14;
  Refused(up,
          {"f: line 2 column ", "scheduler.params.decay_mom_rate is 0.1",
           "out of [0, 1) at update 14 of 14"},
          context);
  context.total_steps = 20;
  Refused(down, {"decay_mom_rate is -1", "out of [0, 1) at update 14 of 20"}, context);
  CHECK(HasNote(Parsed(up), "out of [0, 1) at update 14, which is refused when it comes"));
  CHECK(!HasNote(Parsed(OneCycleWith(", \"decay_step_size\": 2")), "out of"));
}

TEST_CASE("DeepSpeedConfig: keys of loss scaling without an effect are named") {
  const DeepSpeedConfig wide =
      Parsed(With(R"("fp16": {"loss_scale": 128, "hysteresis": 3}, "bf16": {"enabled": true})"));
  CHECK(HasNote(wide, "fp16.loss_scale is ignored: the run is in bf16, and fp16.enabled is not"));
  CHECK(HasNote(wide, "fp16.hysteresis is ignored: the run is in bf16"));
  CHECK_THAT(wide.resolved, !ContainsSubstring("hysteresis"));
  const DeepSpeedConfig fixed =
      Parsed(With(R"("fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 4})"));
  CHECK(HasNote(fixed, "fp16.initial_scale_power is ignored: fp16.loss_scale is 128"));
  CHECK_THAT(fixed.resolved, !ContainsSubstring("initial_scale_power"));
  CHECK_THAT(fixed.resolved, ContainsSubstring("\"loss_scale\": 128"));
  for (const std::string& note : Parsed(With(R"("fp16": {"enabled": true})")).notes) {
    CHECK_THAT(note, !ContainsSubstring("is ignored: "));
  }
}

TEST_CASE("DeepSpeedConfig: a rate beside a schedule with its own is refused or named") {
  const std::string warm_up =
      R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-3}})";
  ConfigContext context = Context();
  context.given["optimizer.params.lr"] = {"--learning_rate", 5e-4};
  Refused(With(warm_up), {"scheduler.params.warmup_max_lr is 0.002, but --learning_rate is 5e-04"},
          context);
  Refused(With(R"("scheduler": {"type": "LRRangeTest"})"),
          {"LRRangeTest has rates of its own, but --learning_rate is 5e-04"}, context);
  context.given["optimizer.params.lr"] = {"--learning_rate", 2e-3};
  CHECK(Parsed(With(warm_up), context).config.schedule);
  const DeepSpeedConfig file =
      Parsed(With(R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, )" + warm_up));
  CHECK(HasNote(file, "optimizer.params.lr, 0.001, has no effect: scheduler.params.warmup_max_lr"));
}

}  // namespace
}  // namespace zero
