// What zero-train refuses about checkpoints, with one line each.
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/programs/training_text.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

using Flags = std::vector<std::string>;

TEST_CASE("zero-train: flags of checkpoints that do not fit are one line and status 2",
          "[programs][checkpoint][errors]") {
  const TrainingFolder folder;
  const auto refused = [&](const Flags& flags, const std::vector<std::string>& words) {
    folder.CheckRefused(flags, 2, words);
  };
  const std::string dir = "--checkpoint_dir=" + folder.File("saved");
  refused({"--save_every=3"}, {"--save_every is given", "--checkpoint_dir"});
  refused({"--save_every_minutes=3"}, {"--save_every_minutes is given", "--checkpoint_dir"});
  refused({"--keep_last=3"}, {"--keep_last is given", "--checkpoint_dir"});
  refused({dir, "--keep_every=3"}, {"--keep_every is given", "--keep_last"});
  refused({"--checkpoint_memory=1GB"}, {"--checkpoint_memory is given", "--checkpoint_dir"});
  refused({dir, "--checkpoint_memory=12"}, {"--checkpoint_memory is 12", "0 or at least 1MiB"});
  refused({dir, "--checkpoint_memory=much"}, {"--checkpoint_memory is 'much'", "512MB or 2GiB"});
  refused({dir, "--checkpoint_memory=99999999TB"}, {"--checkpoint_memory is '99999999TB'"});
  refused({dir, "--save_every=-1"}, {"--save_every is '-1'"});
  refused({"--resume=latest"}, {"--resume is latest", "--checkpoint_dir is missing"});
  refused({"--output=", "--metrics=", dir, "--compare_stages"},
          {"--checkpoint_dir", "--compare_stages"});
  refused({"--data_format=words"}, {"--data_format is 'words'", "auto or text or llmc"});
}

TEST_CASE("zero-train: names that are empty are refused", "[programs][checkpoint][errors]") {
  const TrainingFolder folder;
  for (const char* name : {"resume", "checkpoint_dir", "output", "metrics"}) {
    const Outcome outcome = folder.Train({absl::StrCat("--", name, "=")});
    CHECK(outcome.status == 2);
    CHECK(outcome.err ==
          absl::StrCat("zero-train: --", name, " is empty; it must name a file or folder\n"));
  }
}

TEST_CASE("zero-train: a folder with later checkpoints than where the run begins is refused",
          "[programs][checkpoint][errors]") {
  const TrainingFolder folder;
  const std::string dir = folder.File("saved");
  const Flags run = {"--checkpoint_dir", dir, "--save_every=1", "--keep_last=1"};
  const auto train = [&](Flags flags) {
    flags.insert(flags.end(), run.begin(), run.end());
    return folder.Train(flags);
  };
  REQUIRE(folder.Train({"--steps=3", "--checkpoint_dir", dir, "--save_every=1"}).status == 0);
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(dir)) found.insert(entry.path().filename());
    return found;
  };
  const auto before = names();
  REQUIRE(before.size() == 3);
  for (const Flags& begin : {Flags{"--steps=4"}, Flags{"--steps=4", "--seed=7"},
                             Flags{"--steps=4", "--resume", dir + "/step-00000001"}}) {
    const Outcome outcome = train(begin);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 1);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("--checkpoint_dir: " + dir) &&
                                ContainsSubstring("up to step-00000003") &&
                                ContainsSubstring("--resume latest"));
    CHECK(names() == before);
  }
  // Elsewhere it may go on from there; a slash at the end changes nothing.
  const Outcome elsewhere = folder.Train(
      {"--steps=2", "--resume", dir + "/step-00000001/", "--checkpoint_dir", folder.File("other")});
  INFO(elsewhere.err);
  CHECK(elsewhere.status == 0);
  CHECK(train({"--steps=4", "--resume=latest"}).status == 0);
  CHECK(names() == std::set<std::string>{"step-00000004"});
}

TEST_CASE("zero-train --resume: what is no checkpoint is one line",
          "[programs][checkpoint][errors]") {
  const TrainingFolder folder;
  fs::create_directory(folder.File("empty"));
  fs::create_directories(folder.File("half/step-00000003"));
  const auto refused = [&](const std::string& path, const std::vector<std::string>& words) {
    folder.CheckRefused({"--resume", path}, 1, words);
  };
  refused(folder.File("absent"), {"--resume: ", "absent: no such folder; it must be a checkpoint"});
  refused(folder.File("empty"), {"--resume: ", "empty: holds no complete checkpoint"});
  refused(folder.File("half"), {"not complete", "half/step-00000003"});
  refused(folder.data(), {"--resume: ", "text.txt: is no folder; it must be a checkpoint"});
  WriteFile(folder.File("half/step-00000003/manifest.json"), "{\"format\": 2}");
  refused(folder.File("half/step-00000003"), {"manifest.json"});
  folder.CheckRefused({"--checkpoint_dir", folder.data() + "/below"}, 1,
                      {"--checkpoint_dir: ", "text.txt' is none"});
}

TEST_CASE("zero-train --resume: a checkpoint of another run is refused with all that differs",
          "[programs][checkpoint][errors]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  REQUIRE(folder.Train({"--steps=2", "--checkpoint_dir", saved}).status == 0);
  const auto refused = [&](const Flags& flags, const std::vector<std::string>& words) {
    Flags all = {"--resume", saved};
    all.insert(all.end(), flags.begin(), flags.end());
    folder.CheckRefused(all, 1, words);
  };
  refused({"--steps=1"}, {"step-00000002: is of step 2, and --steps", "is 1"});
  refused({"--seed=6", "--shuffle=false", "--sequence_length=8"},
          {"another run", "seed is 5 in the checkpoint, 6 now",
           "shuffle is true in the checkpoint, false now",
           "sequence_length is 16 in the checkpoint, 8 now"});
  std::string text = ReadFile(folder.data());
  text[17] = text[17] == 'x' ? 'y' : 'x';
  WriteFile(folder.File("other.txt"), text);
  refused({"--data", folder.File("other.txt")},
          {"data is 6", " bytes, hash ", "in the checkpoint", " now"});
  // What the model computes, although no tensor has another shape.
  std::string model = ReadFile(folder.model());
  model.replace(model.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 3");
  model.insert(model.find("\"vocab_size\""), "\"rope_theta\": 500.0, ");
  WriteFile(folder.File("other.json"), model);
  refused({"--model", folder.File("other.json")},
          {"\"num_hidden_layers\" is 2 in the checkpoint, 3 now",
           "\"rope_theta\" is 10000.0 in the checkpoint, 500.0 now"});
  // What its states are, before anything is allocated.
  const std::string way = "go on with what it was written with, or make weights of it";
  refused({"--optimizer=sgd", "--momentum=0.9"},
          {"--resume: ", "its states are those of adamw, and --optimizer is sgd;", way});
  refused({"--dtype=fp16", "--optimizer=lion"},
          {"its states are those of adamw, and --optimizer is lion; its weights are bf16, and "
           "--dtype is fp16;",
           way});
  refused({"--freeze=*norm.weight"},
          {"--freeze names model.layers.0.input_layernorm.weight, "
           "model.layers.0.post_attention_layernorm.weight, "
           "model.layers.1.input_layernorm.weight and 2 more, trained in the checkpoint"});
}

TEST_CASE("zero-train --resume: hyper-parameters that are others now are told, and count",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  REQUIRE(folder.Train({"--steps=2", "--checkpoint_dir", saved}).status == 0);
  const Outcome outcome = folder.Train({"--resume", saved, "--steps=4", "--learning_rate=0.25",
                                        "--clip=0", "--micro_batch=3", "--log_every=1"});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  for (const char* words :
       {"note        a step took 1 samples before, and takes 3 now",
        ": 0.01 in the checkpoint, 0.25 now; the configuration wins",
        "note        clip_norm: 1 in the checkpoint, 0 now; the configuration", "rate 2.50e-01"}) {
    CHECK_THAT(outcome.out, ContainsSubstring(words));
  }
}

TEST_CASE("zero-train --resume: metrics of something else are not appended to",
          "[programs][checkpoint][errors]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  REQUIRE(folder.Train({"--steps=2", "--checkpoint_dir", saved}).status == 0);
  const std::string metrics = folder.File("m.jsonl");
  const auto resume = [&](const std::string& before) {
    WriteFile(metrics, before);
    return folder.Train({"--resume", saved, "--steps=3", "--metrics", metrics});
  };
  const std::string other = "{\"step\": 1, \"loss\": 3}\nname,loss\n";
  const Outcome refused = resume(other);
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, ContainsSubstring("--metrics: ") && ContainsSubstring("line 2"));
  CHECK(ReadFile(metrics) == other);
  // A line that was cut short is dropped, and so is a step that is done again.
  CHECK(
      resume("{\"step\": 2, \"loss\": 4}\n{\"step\": 3, \"loss\": 5}\n{\"step\": 4, \"lo").status ==
      0);
  const std::string text = ReadFile(metrics);
  CHECK(LinesOf(text) == 2);
  CHECK(text.rfind("{\"step\": 2, \"loss\": 4}\n{\"step\": 3, \"loss\": ", 0) == 0);
}

}  // namespace
}  // namespace zero::programs
