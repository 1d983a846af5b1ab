// zero-train with a configuration file of DeepSpeed.
#include "examples/train/config_file.h"

#include <sstream>

#include "examples/train/options.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

// zero-train on the folder's model and text with nothing else but `flags`.
Outcome RunPlain(const TrainingFolder& folder, const std::vector<std::string>& flags) {
  std::vector<std::string> all = {"--model", folder.model(), "--data", folder.data(), "--threads",
                                  "2",       "--seed",       "5"};
  all.insert(all.end(), flags.begin(), flags.end());
  return RunProgram("zero-train", all);
}

constexpr char kFile[] = R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": 0.125,
                                            "betas": [0.75, 0.875], "eps": 1e-6}},
  "gradient_clipping": 0.5, "steps_per_print": 1, "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "bf16"},
  "zero_optimization": {"stage": 1, "reduce_bucket_size": "auto", "overlap_comm": true},
  "wall_clock_breakdown": true, // no
})";

TEST_CASE("zero-train: a configuration file does what the same flags do", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("ds.json"), kFile);
  const Outcome file =
      RunPlain(folder, {"--config", folder.File("ds.json"), "--ranks=2", "--steps=3",
                        "--learning_rate=1e-2", "--metrics", folder.File("file.jsonl")});
  INFO(file.err);
  REQUIRE(file.status == 0);
  const Outcome flags = RunPlain(
      folder, {"--ranks=2", "--steps=3", "--learning_rate=1e-2", "--micro_batch=2",
               "--accumulation=2", "--weight_decay=0.125", "--beta1=0.75", "--beta2=0.875",
               "--epsilon=1e-6", "--clip=0.5", "--log_every=1", "--accumulation_dtype=bf16",
               "--stage=1", "--reduce_bucket_size=576", "--metrics", folder.File("flags.jsonl")});
  INFO(flags.err);
  REQUIRE(flags.status == 0);
  const auto losses = [&](const std::string& name) {
    std::string all;
    const std::string text = ReadFile(folder.File(name));
    for (size_t at = text.find("\"loss\""); at != std::string::npos;
         at = text.find("\"loss\"", at + 1)) {
      all += text.substr(at, text.find(',', at) - at) + "\n";
    }
    return all;
  };
  CHECK(LinesOf(losses("file.jsonl")) == 3);
  CHECK(losses("file.jsonl") == losses("flags.jsonl"));
  CHECK_THAT(file.out, ContainsSubstring("step 3/3"));
}

TEST_CASE("zero-train: the configuration in force and what is ignored are printed", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("ds.json"), kFile);
  const Outcome outcome =
      RunPlain(folder, {"--config", folder.File("ds.json"), "--ranks=4", "--steps=1"});
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  for (const char* words :
       {"ds.json, in force:\n{\n  \"train_batch_size\": 8,", "\"gradient_accumulation_steps\": 1,",
        "\"lr\": 0.001,", "\"reduce_bucket_size\": 576,", "note        wall_clock_breakdown is ",
        "stage 1 ", "4 ranks x 1 passes x 2 samples"}) {
    CHECK_THAT(outcome.out, ContainsSubstring(words));
  }
}

// The arguments in a line of them; quotes around one are taken off.
std::vector<std::string> ArgumentsIn(const std::string& line) {
  std::vector<std::string> arguments;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool quoted = word.size() > 1 && word.front() == '\'';
    arguments.push_back(quoted ? word.substr(1, word.size() - 2) : word);
  }
  return arguments;
}

std::string Between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

TEST_CASE("zero-train: what is printed as in force makes the same run again", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("ds.json"), R"({"train_batch_size": 2, "bf16": {"enabled": true}})");
  const auto run = [&](const std::string& config, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--config", folder.File(config), "--steps=4", "--metrics",
                               folder.File("metrics.jsonl")});
    std::vector<std::string> all = {"--model", folder.model(), "--data", folder.data()};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = RunProgram("zero-train", all);
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return outcome.out;
  };
  const auto metrics = [&] { return WithoutTimes(ReadFile(folder.File("metrics.jsonl"))); };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--schedule=restarts", "--cycles=2", "--warmup_steps=1", "--master=split", "--prefetch=2",
        "--loss_scale=8", "--stage=3", "--no_decay=*embed*", "--freeze=*norm*,*k_proj*",
        "--weight_decay=0.5", "--max_skips=7", "--check_gradients", "--seed=3", "--noshuffle"},
       "--schedule restarts --cycles 2 --warmup_steps 1 --loss_scale 8 --master split "
       "--prefetch 2 --no_decay '*embed*' --freeze '*norm*,*k_proj*' --max_skips 7 "
       "--check_gradients true --seed 3 --shuffle false"},
      {{"--master=none", "--prefetch=0", "--stage=3", "--learning_rate=0.01"}, ""},
      {{"--check_overflow=false", "--clip=0"}, ""}};
  for (const auto& [flags, beside] : cases) {
    const std::string out = run("ds.json", flags);
    INFO(out);
    const std::string first = metrics();
    CHECK(Between(out, "\nand flags   ", "\n") == beside);
    WriteFile(folder.File("again.json"), "{" + Between(out, "in force:\n{", "\n}\n") + "\n}");
    const std::string again = run("again.json", ArgumentsIn(beside));
    CHECK(metrics() == first);
    CHECK(Between(again, "in force:\n{", "\n}\n") == Between(out, "in force:\n{", "\n}\n"));
    CHECK(Between(again, "\nand flags   ", "\n") == beside);
  }
}

TEST_CASE("zero-train: flags that a configuration file contradicts are one error", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("ds.json"), kFile);
  const auto before = folder.Names();
  const Outcome outcome =
      RunPlain(folder, {"--config", folder.File("ds.json"), "--stage=3", "--micro_batch=4",
                        "--clip=0.5", "--nocompare_stages", "--dtype=fp32", "--beta2=0.5"});
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 4);
  for (const char* words :
       {"zero-train: ", "train_micro_batch_size_per_gpu is 2, but --micro_batch is 4",
        "betas[1] is 0.875, but --beta2 is 0.5", "bf16.enabled is true, but --dtype is \"fp32\"",
        "zero_optimization.stage is 1, but --stage is 3"}) {
    CHECK_THAT(outcome.err, ContainsSubstring(words));
  }
  CHECK(folder.Names() == before);
}

TEST_CASE("zero-train: a configuration file that is wrong is refused with all its problems",
          "[programs]") {
  const TrainingFolder folder;
  const auto refused = [&](const std::string& text, int lines,
                           const std::vector<std::string>& words) {
    CAPTURE(text);
    WriteFile(folder.File("ds.json"), text);
    const Outcome outcome = RunPlain(folder, {"--config", folder.File("ds.json"), "--ranks", "2",
                                              "--output", folder.File("made")});
    CHECK(outcome.status == 1);
    CHECK(LinesOf(outcome.err) == lines);
    for (const std::string& word : words) CHECK_THAT(outcome.err, ContainsSubstring(word));
    for (const std::string& name : folder.Names()) CHECK(name != "made");
  };
  refused("", 1, {"ds.json: is empty"});
  refused("{\"train_batch_size\": 2\n\"gradient_cliping\": 1}", 2,
          {"line 2 column 1: a comma is missing", "line 2 column 1: unknown key"});
  refused("{\"train_batch_size\": 3}", 1, {"3 is no multiple of 1 x 2", "from --ranks"});
  refused("{\"train_micro_batch_size_per_gpu\": 2e6}", 1, {"2000000", "at most 1048576"});
  refused("{}", 1, {"one of train_batch_size"});
  const Outcome absent = RunPlain(folder, {"--config", folder.File("absent.json")});
  CHECK(absent.status == 1);
  CHECK_THAT(absent.err, ContainsSubstring("absent.json: no such file"));
  CHECK(LinesOf(absent.err) == 1);
}

// Options as they are after the flags `arguments` and a file of `text`.
train::Options OptionsOf(const std::string& text, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  WriteFile(folder.File("ds.json"), text);
  train::Options options;
  support::FlagTable flags;
  AddFlags(flags, options);
  REQUIRE_OK(flags.Parse(arguments));
  options.model = "model";
  options.data = "data";
  options.config = folder.File("ds.json");
  llama::LlamaConfig model;
  model.hidden_size = 16;
  REQUIRE_OK(ReadConfigFile(flags, model, std::nullopt, options));
  REQUIRE_OK(FinishOptions(options));
  return options;
}

TEST_CASE("ReadConfigFile: what only a file can say reaches the optimizer") {
  const Config config = OptimizerConfig(OptionsOf(
      R"({"train_batch_size": 2, "fp16": {"enabled": true, "hysteresis": 5},
          "optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.5,
                                                   "bias_correction": false}},
          "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.25, "cycle_max_lr": 0.5,
                                                       "cycle_first_step_size": 4}},
          "prescale_gradients": true, "communication_data_type": "fp32"})",
      {"--ranks=2"}));
  CHECK(config.optimizer == OptimizerKind::kAdam);
  CHECK(!config.bias_correction);
  CHECK(config.loss_scale.kind == LossScaling::kDynamic);
  CHECK(config.loss_scale.hysteresis == 5);
  CHECK(config.schedule(5) == 0.5);
  CHECK(config.beta1_schedule(5) == Approx(0.8));
  CHECK(config.gradient_predivide_factor == 2);
  CHECK(config.communication == DType::kF32);
  REQUIRE(config.groups.size() == 2);
  CHECK(config.groups[0].weight_decay == 0.5);
  CHECK(config.groups[1].weight_decay == 0);
}

TEST_CASE("ReadConfigFile: flags fill in what the file leaves out") {
  const train::Options options =
      OptionsOf("{\"bf16\": {\"enabled\": true}}",
                {"--micro_batch=3", "--accumulation=2", "--optimizer=sgd", "--momentum=0.5",
                 "--master=split", "--learning_rate=0.5", "--schedule=linear", "--steps=4",
                 "--stage=2", "--prefetch=3", "--clip=2", "--log_every=7"});
  CHECK(options.micro_batch == 3);
  CHECK(options.accumulation == 2);
  CHECK(options.log_every == 7);
  const Config config = OptimizerConfig(options);
  CHECK(config.optimizer == OptimizerKind::kSgd);
  CHECK(config.momentum == 0.5);
  CHECK(config.master == MasterKind::kSplit);
  CHECK(config.weight_rounding == WeightRounding::kNearestAway);
  CHECK(config.schedule(3) == 0.25);
  CHECK(config.stage == 2);
  CHECK(config.prefetch == 3);
  CHECK(config.clip_norm == 2);
}

TEST_CASE("ReadConfigFile: --loss_scale is that of the file, or fills it in") {
  const auto scale = [](const std::string& text, const std::vector<std::string>& flags) {
    return OptimizerConfig(OptionsOf("{\"train_batch_size\": 1, " + text + "}", flags)).loss_scale;
  };
  const std::string fp16 = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 4}";
  CHECK(scale(fp16, {}).scale == 16);
  CHECK(scale(fp16, {}).kind == LossScaling::kDynamic);
  CHECK(scale(fp16, {"--loss_scale=8"}).scale == 8);
  CHECK(scale(fp16, {"--loss_scale=8"}).kind == LossScaling::kStatic);
  CHECK(scale("\"fp16\": {\"enabled\": true, \"loss_scale\": 4}", {}).scale == 4);
  CHECK(scale("\"bf16\": {\"enabled\": true}", {}).scale == 1);
}

TEST_CASE("zero-train: a warm-up that the run does not finish is noted", "[programs]") {
  const TrainingFolder folder;
  const std::string note = "\nnote        --warmup_steps is 5: the run ends after 4 steps";
  CHECK_THAT(folder.Train({"--warmup_steps=5"}).out, ContainsSubstring(note));
  CHECK_THAT(folder.Train({"--warmup_steps=4"}).out, !ContainsSubstring("--warmup_steps is"));
}

TEST_CASE("ScheduleOf: the rate rises in a line and then does what its kind says") {
  train::Options options;
  options.learning_rate = 0.5;
  options.warmup_steps = 4;
  options.steps = 12;
  options.cycles = 2;
  const auto rate = [&](const char* kind, int64_t count) {
    options.schedule = kind;
    const auto schedule = ScheduleOf(options);
    REQUIRE_OK(schedule.status());
    return (*schedule)(count);
  };
  for (const char* kind : {"constant", "linear", "cosine", "restarts"}) {
    CAPTURE(kind);
    CHECK(rate(kind, 1) == 0);
    CHECK(rate(kind, 4) == 0.375);
    CHECK(rate(kind, 5) == 0.5);
  }
  CHECK(rate("constant", 1000) == 0.5);
  CHECK(rate("linear", 9) == 0.25);
  CHECK(rate("linear", 13) == 0);
  CHECK(rate("cosine", 9) == Approx(0.25));
  CHECK(rate("restarts", 9) == 0.5);
  CHECK(rate("restarts", 7) == Approx(0.25));
  options.warmup_steps = 13;
  CHECK(absl::IsInvalidArgument(ScheduleOf(options).status()));
}

}  // namespace
}  // namespace zero::programs
