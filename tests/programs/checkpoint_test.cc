// zero-train: a run that is saved and resumed in another process is the run that was not stopped.
#include "zero/save/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "io/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/refusal.h"
#include "tests/programs/training_text.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

using Flags = std::vector<std::string>;

Flags Joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string Step(const std::string& folder, int64_t step) {
  return absl::StrCat(folder, "/", CheckpointName(step));
}

// All files of a folder, by name.
std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    contents[entry.path().filename().string()] = ReadFile(entry.path().string());
  }
  return contents;
}

// The first file that is not in both folders, or not the same; empty: there is none.
std::string Difference(const std::string& a, const std::string& b) {
  const auto first = Contents(a), second = Contents(b);
  if (first.empty()) return "nothing in the first";
  for (const auto& [name, content] : second) {
    if (first.count(name) == 0) return name + " is in the second only";
  }
  for (const auto& [name, content] : first) {
    const auto other = second.find(name);
    if (other == second.end()) return name + " is in the first only";
    if (other->second != content) return name + " differs";
  }
  return "";
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What a step was, in numbers that read back exactly.
std::vector<std::string> Numbers(const std::string& metrics) {
  std::vector<std::string> all;
  for (const char* key :
       {"step", "loss", "learning_rate", "grad_norm", "loss_scale", "next_loss_scale", "skipped",
        "skipped_steps", "consecutive_skips", "tokens", "evaluation_loss"}) {
    all.push_back(key);
    for (const std::string& text : TextOf(key, metrics)) all.push_back(text);
  }
  return all;
}

constexpr int64_t kSteps = 6;

// A run to the end that saves after each step, then one in another process from `saved_at` on.
void CheckResumed(const TrainingFolder& folder, const Flags& flags, int64_t saved_at,
                  const std::string& program = "zero-train") {
  CAPTURE(flags, saved_at);
  const auto run = [&](const std::string& name, const Flags& more) {
    const Outcome outcome = folder.Train(
        Joined(Joined(flags, {"--steps", std::to_string(kSteps), "--metrics",
                              folder.File(name + ".jsonl"), "--output", folder.File(name),
                              "--checkpoint_dir", folder.File(name + "_saved")}),
               more),
        program);
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.err.empty());
    return outcome.out;
  };
  run("whole", {absl::StrCat("--save_every=", saved_at)});
  // Those of the resumed run replace what was written after it was saved.
  fs::copy_file(folder.File("whole.jsonl"), folder.File("resumed.jsonl"),
                fs::copy_options::overwrite_existing);
  const std::string from = Step(folder.File("whole_saved"), saved_at);
  const std::string out = run("resumed", {"--resume", from});
  CHECK_THAT(out, ContainsSubstring(
                      absl::StrCat("resumed     ", from, ": step ", saved_at, " of ", kSteps)));
  CHECK_THAT(out, !ContainsSubstring("note        "));

  const std::string whole = ReadFile(folder.File("whole.jsonl"));
  CHECK(LinesOf(whole) == kSteps);
  CHECK(Numbers(ReadFile(folder.File("resumed.jsonl"))) == Numbers(whole));
  CHECK(Difference(folder.File("resumed"), folder.File("whole")) == "");
  // Masters, moments, counts, loss scale, position: everything that the next step would need.
  CHECK(Difference(Step(folder.File("resumed_saved"), kSteps),
                   Step(folder.File("whole_saved"), kSteps)) == "");
  fs::remove_all(folder.File("whole_saved"));
  fs::remove_all(folder.File("resumed_saved"));
}

// Of a dtype; in fp16 with a step that overflows right before it is saved.
void CheckEveryStage(const std::string& dtype) {
  const TrainingFolder folder;
  if (dtype == "fp16") {
    // Overflows in the first two steps.
    WriteFile(folder.File("ds.json"),
              R"({"fp16": {"enabled": true, "initial_scale_power": 18, "hysteresis": 2,
                           "loss_scale_window": 2}})");
  }
  for (int stage = 0; stage < 4; ++stage) {
    for (const int accumulation : {1, 3}) {
      const Flags flags = {
          dtype == "fp16" ? "--config=" + folder.File("ds.json") : "--dtype=" + dtype,
          absl::StrCat("--stage=", stage),
          absl::StrCat("--accumulation=", accumulation),
          absl::StrCat("--ranks=", 1 + (stage + accumulation) % 3),
          "--micro_batch=1",
          "--weight_decay=0.1",
          "--schedule=cosine",
          "--warmup_steps=2",
          "--evaluate_every=2",
          "--evaluate_batches=1"};
      CheckResumed(folder, flags, dtype == "fp16" && stage % 2 == 0 ? 1 : 3);
      if (dtype != "fp16") continue;
      const auto records = ReadMetrics(ReadFile(folder.File("whole.jsonl")));
      CHECK(records[0].skipped);
      CHECK(records[0].next_loss_scale == records[0].loss_scale);  // the hysteresis is half used
      CHECK_FALSE(records.back().skipped);
    }
  }
}

TEST_CASE("zero-train --resume: fp32 goes on bit for bit in every stage and accumulation",
          "[programs][checkpoint]") {
  CheckEveryStage("fp32");
}

TEST_CASE("zero-train --resume: bf16 goes on bit for bit in every stage and accumulation",
          "[programs][checkpoint]") {
  CheckEveryStage("bf16");
}

TEST_CASE("zero-train --resume: fp16 goes on bit for bit in every stage and accumulation",
          "[programs][checkpoint]") {
  CheckEveryStage("fp16");
}

TEST_CASE("zero-train --resume: every optimizer and master goes on bit for bit",
          "[programs][checkpoint]") {
  const TrainingFolder folder(true);
  for (const Flags& flags :
       {Flags{"--master=split"}, Flags{"--master=none", "--checkpoint_memory=0"},
        Flags{"--optimizer=sgd", "--momentum=0.9", "--dtype=fp32"},
        Flags{"--optimizer=lion", "--shuffle=false", "--freeze=*layers.0.*"},
        Flags{"--schedule=restarts", "--cycles=2", "--checkpoint_memory=1MiB"}}) {
    CheckResumed(folder, Joined(flags, {"--ranks=2", "--learning_rate=1e-3"}), 2);
  }
}

// At a rate of 0 the loss of a step says which samples it took, and nothing else.
TEST_CASE("zero-train --resume: other ranks, stages and batches go on at the same sample",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string dtype = GENERATE("fp32", "bf16");
  const Flags still = {"--learning_rate=0", "--dtype=" + dtype};
  // 12 samples, the last of them in the second epoch of a text of 9 samples.
  WriteFile(folder.File("text.txt"), ReadFile(folder.File("text.txt")).substr(0, 16 * 9 + 1));
  REQUIRE(folder
              .Train(Joined(still, {"--ranks=2", "--stage=3", "--micro_batch=2", "--steps=3",
                                    "--checkpoint_dir", folder.File("saved")}))
              .status == 0);
  const struct {
    int ranks, micro_batch, accumulation, stage;
  } cells[] = {{1, 1, 4, 0}, {4, 1, 1, 2}, {3, 1, 1, 1}, {1, 2, 1, 3}, {2, 1, 3, 2}, {8, 1, 3, 3}};
  for (const auto& cell : cells) {
    const Flags flags =
        Joined(still, {absl::StrCat("--ranks=", cell.ranks), absl::StrCat("--stage=", cell.stage),
                       absl::StrCat("--micro_batch=", cell.micro_batch),
                       absl::StrCat("--accumulation=", cell.accumulation)});
    CAPTURE(flags);
    const int batch = cell.ranks * cell.micro_batch * cell.accumulation;
    const int before = 12 / batch;  // steps of this batch to the same sample
    const auto losses = [&](int steps, const Flags& more) {
      return TextOf("loss",
                    folder.Metrics(Joined(Joined(flags, {absl::StrCat("--steps=", steps)}), more)));
    };
    const auto resumed = losses(3 + 4, {"--resume", folder.File("saved")});
    if (batch == 24) {
      CHECK(resumed.size() == 4);
      continue;
    }
    const auto whole = losses(before + 4, {});
    REQUIRE(whole.size() == static_cast<size_t>(before + 4));
    CHECK(resumed == std::vector<std::string>(whole.begin() + before, whole.end()));
    CHECK(std::set<std::string>(resumed.begin(), resumed.end()).size() > 1);
  }
}

TEST_CASE("zero-train --resume: another number of ranks trains on as before to rounding",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const Flags flags = {"--dtype=fp32", "--steps=8"};
  const auto losses = [&](const Flags& more) {
    std::vector<double> all;
    for (const auto& record : ReadMetrics(folder.Metrics(Joined(flags, more)))) {
      all.push_back(record.loss);
    }
    return all;
  };
  const auto whole = losses(
      {"--ranks=4", "--stage=1", "--checkpoint_dir", folder.File("saved"), "--save_every=4"});
  REQUIRE(whole.size() == 8);
  for (const Flags& more : {Flags{"--ranks=1", "--micro_batch=4", "--stage=0"},
                            Flags{"--ranks=2", "--accumulation=2", "--stage=2"},
                            Flags{"--ranks=3", "--accumulation=4", "--stage=3"}}) {
    CAPTURE(more);
    const auto resumed = losses(Joined(more, {"--resume", Step(folder.File("saved"), 4)}));
    REQUIRE(resumed.size() == 4);
    if (more[0] == "--ranks=3") continue;  // other batches
    for (size_t i = 0; i < 4; ++i) CHECK(resumed[i] == Approx(whole[4 + i]).epsilon(1e-5));
  }
}

TEST_CASE("zero-train --resume: what a checkpoint lacks is named", "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  REQUIRE(folder.Train({"--steps=2", "--checkpoint_dir", saved}).status == 0);
  const std::string path = Step(saved, 2);
  const std::string manifest = ReadFile(path + "/manifest.json");
  const auto resume = [&] {
    return folder.Train({"--steps=3", "--resume", path, "--metrics", folder.File("m.jsonl")});
  };
  REQUIRE(resume().status == 0);
  const auto refused = [&](const std::string& words) { CheckFailed(resume(), 1, {path, words}); };
  // A key, by its place.
  using Pointer = nlohmann::ordered_json::json_pointer;
  for (const char* place : {"/step",
                            "/world_size",
                            "/stage",
                            "/optimizer",
                            "/weight_rounding",
                            "/configuration",
                            "/layout",
                            "/counts/steps",
                            "/counts/applied",
                            "/counts/last_applied_step",
                            "/counts/skipped",
                            "/counts/consecutive_skips",
                            "/loss_scale/scale",
                            "/loss_scale/hysteresis",
                            "/loss_scale/iterations",
                            "/loss_scale/last_overflow",
                            "/loss_scale/clean",
                            "/random/rounding_seed",
                            "/parameters/0/name",
                            "/parameters/0/dtype",
                            "/parameters/0/states",
                            "/files/0/crc32c",
                            "/files/0/pieces",
                            "/attributes"}) {
    CAPTURE(place);
    auto json = nlohmann::ordered_json::parse(manifest);
    const Pointer pointer(place);
    REQUIRE(json.contains(pointer));
    json[pointer.parent_pointer()].erase(pointer.back());
    WriteFile(path + "/manifest.json", json.dump(1));
    refused(pointer.back());
  }
  // A state, a parameter, an attribute: the rest fits together.
  const auto parsed = ParseManifest(manifest);
  REQUIRE_OK(parsed.status());
  const auto change = [&](const std::function<void(CheckpointManifest&)>& edit,
                          const std::string& words) {
    CAPTURE(words);
    CheckpointManifest changed = *parsed;
    edit(changed);
    WriteFile(path + "/manifest.json", FormatManifest(changed));
    refused(words);
  };
  const std::string name = parsed->parameters[3].name;
  for (const char* state : {"master", "moment1", "moment2"}) {
    change([&](CheckpointManifest& m) { m.parameters[3].states.erase(state); }, state);
  }
  change([&](CheckpointManifest& m) { m.parameters.back().name = "another.weight"; },
         "'" + parsed->parameters.back().name + "'");
  CHECK(parsed->attributes.size() == 8);
  for (const auto& [key, value] : parsed->attributes) {
    change([&](CheckpointManifest& m) { m.attributes.erase(key); },
           absl::StrCat("lacks '", key, "'"));
  }
  change([](CheckpointManifest& m) { m.attributes["data_position"] = "-1"; },
         "data_position is '-1'");
  WriteFile(path + "/manifest.json", manifest);
  // A byte of a moment.
  const std::string file = path + "/" + parsed->files[0].name;
  std::string bytes = ReadFile(file);
  bytes[bytes.size() - 100] ^= 1;
  WriteFile(file, bytes);
  refused(parsed->files[0].name);
  fs::remove(file);
  refused(parsed->files[0].name);
}

TEST_CASE("zero-train --keep_last: the newest checkpoints stay, and those of --keep_every",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  const Outcome outcome = folder.Train({"--steps=11", "--checkpoint_dir", saved, "--save_every=1",
                                        "--keep_last=2", "--keep_every=4", "--ranks=2"});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(NamesIn(saved) == std::vector<std::string>{CheckpointName(4), CheckpointName(8),
                                                   CheckpointName(10), CheckpointName(11)});
  CHECK_THAT(outcome.out, ContainsSubstring("removed " + Step(saved, 9)));
}

TEST_CASE("zero-train: a run that is stopped for its skips leaves the checkpoint that was begun",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  // Written while the last two steps go on.
  const Outcome outcome =
      folder.Train({"--dtype=fp16", "--loss_scale=1e25", "--max_skips=5", "--steps=20",
                    "--checkpoint_dir", folder.File("saved"), "--save_every=4", "--ranks=2"});
  INFO(outcome.err);
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 1);
  CHECK_THAT(outcome.err, ContainsSubstring("5 steps in a row"));
  CHECK(NamesIn(folder.File("saved")) == std::vector<std::string>{CheckpointName(4)});
}

TEST_CASE("zero-train --save_every_minutes: a time that has come is answered once",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  // It has always come. It is heard of one step late, and the next is asked for after that.
  const Outcome outcome = folder.Train({"--steps=7", "--checkpoint_dir", folder.File("saved"),
                                        "--save_every_minutes=1e-9", "--ranks=2", "--stage=1"});
  CHECK(outcome.status == 0);
  const auto found = FindCheckpoints(folder.File("saved"));
  REQUIRE_OK(found.status());
  std::vector<int64_t> steps;
  for (const auto& checkpoint : *found) steps.push_back(checkpoint.step);
  CHECK(steps == std::vector<int64_t>{2, 4, 6, 7});
}

TEST_CASE("zero-train --resume latest: begins anew, goes on, and knows the end",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  const auto run = [&](int steps) {
    const Outcome outcome =
        folder.Train({"--checkpoint_dir", saved, "--resume=latest", "--dtype=fp32",
                      absl::StrCat("--steps=", steps), "--metrics", folder.File("m.jsonl"),
                      "--output", folder.File("out")});
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    return outcome.out;
  };
  fs::create_directory(saved);  // a folder that is not there: see the runs that are killed
  CHECK_THAT(run(2), ContainsSubstring("no checkpoint in " + saved + " yet: the run begins anew"));
  fs::create_directory(saved + "/" + ".step-00000009.0123456789abcdef.tmp");
  const std::string second = run(5);
  CHECK_THAT(second, ContainsSubstring("step 2 of 5"));
  CHECK_THAT(second, ContainsSubstring("3 steps, "));
  CHECK(NamesIn(saved).size() == 2);
  const std::string metrics = ReadFile(folder.File("m.jsonl"));
  CHECK(TextOf("step", metrics) == std::vector<std::string>{"1", "2", "3", "4", "5"});
  fs::rename(folder.File("out"), folder.File("first_out"));
  const std::string third = run(5);
  CHECK_THAT(third, ContainsSubstring("the run was complete: all 5 steps were done"));
  CHECK(ReadFile(folder.File("m.jsonl")) == metrics);
  CHECK(Difference(folder.File("out"), folder.File("first_out")) == "");
  CHECK_THAT(third, !ContainsSubstring("checkpoint  "));
  CHECK(NamesIn(saved).size() == 2);
  // A broken one is no reason to begin anew.
  for (const int step : {2, 5}) fs::remove(Step(saved, step) + "/manifest.json");
  const Outcome broken = folder.Train({"--checkpoint_dir", saved, "--resume=latest"});
  CHECK(broken.status == 1);
  CHECK_THAT(broken.err, ContainsSubstring("--resume: ") && ContainsSubstring("not complete") &&
                             ContainsSubstring(Step(saved, 5)));
}

TEST_CASE("zero-train --resume: weights of --model are not read beside a checkpoint",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  REQUIRE(folder.Train({"--dtype=fp32", "--output", folder.File("start")}).status == 0);
  const auto run = [&](const Flags& more) {
    return folder.Train(Joined(
        {"--dtype=fp32", "--model", folder.File("start"), "--metrics", folder.File("m.jsonl")},
        more));
  };
  REQUIRE(run({"--steps=5", "--checkpoint_dir", folder.File("saved"), "--save_every=3"}).status ==
          0);
  const auto whole = TextOf("loss", ReadFile(folder.File("m.jsonl")));
  const Outcome outcome = run({"--steps=5", "--resume", Step(folder.File("saved"), 3)});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("weights     those of " + folder.File("saved")));
  CHECK(TextOf("loss", ReadFile(folder.File("m.jsonl"))) == whole);
}

}  // namespace
}  // namespace zero::programs
