// Folders that a run goes on from or writes to, in the state in which others have left them.
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "io/folder_lock.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

// Turns a bit in the middle of rank 0's file.
void Damage(const std::string& checkpoint) {
  const std::string path = checkpoint + "/rank-00000-of-00002.safetensors";
  std::string bytes = ReadFile(path);
  REQUIRE(!bytes.empty());
  bytes[bytes.size() / 2] ^= 0x10;
  WriteFile(path, bytes);
}

TEST_CASE("zero-train --resume latest: a damaged checkpoint is told of and the one before taken",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved"), metrics = folder.File("metrics.jsonl");
  const std::vector<std::string> flags = {"--ranks=2", "--steps=4", "--checkpoint_dir", saved,
                                          "--metrics", metrics,     "--save_every=1"};
  REQUIRE(folder.Train(flags).status == 0);
  const std::string whole = ReadFile(metrics);
  const std::string last = ReadFile(saved + "/step-00000004/rank-00000-of-00002.safetensors");
  const auto at = [&](int64_t step) { return saved + "/" + CheckpointName(step); };
  Damage(at(4));
  Damage(at(3));
  const auto resume = [&](const std::string& from) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--resume", from});
    return folder.Train(all);
  };
  // One that is named is meant.
  const Outcome named = resume(at(4));
  CHECK(named.status == 1);
  CHECK(LinesOf(named.err) == 1);
  CHECK_THAT(named.err, ContainsSubstring(at(4)) && ContainsSubstring("damaged"));
  for (const std::string& from : {std::string("latest"), saved}) {
    CAPTURE(from);
    const Outcome resumed = resume(from);
    INFO(resumed.out << resumed.err);
    CHECK(resumed.status == 0);
    for (const int64_t step : {4, 3}) {
      CHECK_THAT(resumed.out,
                 ContainsSubstring("resume      passed over, damaged: rank 0: " + at(step)));
    }
    CHECK_THAT(resumed.out,
               ContainsSubstring(absl::StrCat("resumed     ", at(2), ": step 2 of 4")));
    // The same run, which has put the damaged ones right.
    CHECK(TextOf("loss", ReadFile(metrics)) == TextOf("loss", whole));
    CHECK(ReadFile(at(4) + "/rank-00000-of-00002.safetensors") == last);
    Damage(at(4));
    Damage(at(3));
  }
  for (const int64_t step : {1, 2}) Damage(at(step));
  const Outcome none = resume("latest");
  CHECK(none.status == 1);
  CHECK(LinesOf(none.err) == 1);
  CHECK_THAT(none.err,
             ContainsSubstring("no checkpoint in " + saved + " is sound, each of 4 that") &&
                 ContainsSubstring("the oldest: ") && ContainsSubstring(at(1)));
}

TEST_CASE("zero-train --resume: a checkpoint of a later step than --steps may be damaged",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  const auto at = [&](int64_t step) { return saved + "/" + CheckpointName(step); };
  const auto train = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--ranks=2", "--checkpoint_dir", saved, "--save_every=1"});
    return folder.Train(flags);
  };
  REQUIRE(train({"--steps=4"}).status == 0);
  const auto refused = [&](const std::string& from, const std::string& why) {
    const Outcome outcome = train({"--steps=2", "--resume", from});
    CHECK(outcome.status == 1);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("--resume: " + at(4) + why));
  };
  refused("latest", ": is of step 4, and --steps, the total of the run, is 2");
  Damage(at(4));
  refused(at(4), "/rank-00000-of-00002.safetensors: ");
  Damage(at(3));
  const Outcome outcome = train({"--steps=2", "--resume=latest"});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  for (const int64_t step : {4, 3}) {
    CHECK_THAT(outcome.out, ContainsSubstring("resume      passed over, damaged: " + at(step)));
  }
  CHECK_THAT(outcome.out, ContainsSubstring("step 2 of 2"));
}

TEST_CASE("zero-train: a folder that another run writes to is refused and the run named",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string taken = folder.File("taken");
  fs::create_directory(taken);
  {
    const auto lock = FolderLock::Take(taken);
    REQUIRE_OK(lock.status());
    for (const char* flag : {"--output", "--checkpoint_dir"}) {
      const Outcome refused = folder.Train({flag, taken});
      CHECK(refused.status == 1);
      CHECK(LinesOf(refused.err) == 1);
      CHECK_THAT(refused.err, ContainsSubstring(absl::StrCat("zero-train: ", flag, ": '", taken,
                                                             "' is in use by process ", getpid())));
    }
  }
  // Of one run both may be one folder, and nothing of the lock stays there.
  const Outcome both = folder.Train({"--output", taken, "--checkpoint_dir", taken, "--steps=2"});
  INFO(both.err);
  CHECK(both.status == 0);
  CHECK(fs::exists(taken + "/step-00000002"));
  CHECK(fs::exists(taken + "/model.safetensors"));
  CHECK_FALSE(fs::exists(taken + "/.zero-lock"));
}

TEST_CASE("zero-train: a checkpoint under the name of another step is refused and stays",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved"), wrong = saved + "/step-00000009";
  REQUIRE(folder.Train({"--steps=3", "--checkpoint_dir", saved, "--save_every=1"}).status == 0);
  fs::rename(saved + "/step-00000002", wrong);
  const std::string why = wrong + ": is called after step 9, but its manifest.json is of step 2";
  const auto refused = [&](std::vector<std::string> flags, const std::string& text) {
    flags.insert(flags.end(), {"--steps=10", "--keep_last=1", "--checkpoint_dir", saved});
    const Outcome outcome = folder.Train(flags);
    CHECK(outcome.status == 1);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("zero-train: " + text));
    CHECK(fs::exists(wrong + "/manifest.json"));
  };
  refused({"--resume=latest"}, "--checkpoint_dir: " + why);
  refused({}, "--checkpoint_dir: " + why);
  CHECK_THAT(folder.Train({"--resume", wrong, "--steps=10"}).err,
             ContainsSubstring("--resume: " + why));
  // Elsewhere in the folder it is passed over.
  const Outcome outcome = folder.Train({"--resume", saved, "--steps=4"});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("resume      passed over, not complete: " + why) &&
                              ContainsSubstring("step 3 of 4"));
  fs::rename(wrong, saved + "/good");
  CHECK(folder.Train({"--resume=latest", "--steps=4", "--checkpoint_dir", saved}).status == 0);
}

TEST_CASE("zero-train --metrics: a file that another run writes is refused and stays as it is",
          "[programs]") {
  const TrainingFolder folder;
  const std::string metrics = folder.File("m.jsonl");
  WriteFile(metrics, "{\"step\": 1}\n");
  fs::create_symlink(metrics, folder.File("link"));
  {
    const auto lock = FolderLock::TakeForFile(fs::canonical(metrics));
    REQUIRE_OK(lock.status());
    for (const std::string& path : {metrics, folder.File("link")}) {
      const Outcome refused = folder.Train({"--metrics", path, "--steps=1"});
      CHECK(refused.status == 1);
      CHECK(LinesOf(refused.err) == 1);
      CHECK_THAT(refused.err, ContainsSubstring("zero-train: --metrics: '") &&
                                  ContainsSubstring(absl::StrCat("in use by process ", getpid())));
    }
  }
  CHECK(ReadFile(metrics) == "{\"step\": 1}\n");
  CHECK(folder.Train({"--metrics", metrics, "--steps=2"}).status == 0);
  CHECK(TextOf("step", ReadFile(metrics)).size() == 2);
  CHECK_FALSE(fs::exists(folder.File(".m.jsonl.zero-lock")));
  // A pipe has no lock, and needs none.
  CHECK_THAT(folder.Train({"--metrics=/dev/stdout", "--steps=1"}).out,
             ContainsSubstring("{\"step\": 1,"));
}

TEST_CASE("zero-train --metrics: a symbolic link stays one when the run goes on", "[programs]") {
  const TrainingFolder folder;
  const std::string link = folder.File("link.jsonl"), metrics = folder.File("elsewhere/m.jsonl");
  fs::create_directory(folder.File("elsewhere"));
  fs::create_symlink(metrics, link);
  for (const char* steps : {"--steps=2", "--steps=4"}) {
    const Outcome outcome = folder.Train(
        {"--metrics", link, "--checkpoint_dir", folder.File("ck"), steps, "--resume=latest"});
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    CHECK(fs::is_symlink(link));
    CHECK(fs::is_regular_file(fs::symlink_status(metrics)));
  }
  CHECK(TextOf("step", ReadFile(metrics)) == std::vector<std::string>{"1", "2", "3", "4"});
}

TEST_CASE("zero-train: nothing is written into a checkpoint or beside the weights of --model",
          "[programs][checkpoint]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved"), step = saved + "/step-00000001";
  const std::string model = folder.File("model");
  REQUIRE(folder.Train({"--checkpoint_dir", saved, "--output", model, "--steps=1"}).status == 0);
  const auto names = [](const std::string& path) {
    return std::distance(fs::directory_iterator(path), fs::directory_iterator());
  };
  const auto before = names(step), weights = names(model);
  const auto refused = [&](std::vector<std::string> flags, const std::string& why) {
    const Outcome outcome = folder.Train(flags);
    CAPTURE(flags, outcome.err);
    CHECK(outcome.status == 2);
    CHECK(outcome.out.empty());
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("zero-train: " + why));
  };
  for (const std::string flag : {"--output", "--checkpoint_dir"}) {
    refused({flag, step}, flag + ": '" + step + "' is a checkpoint, which");
    refused({flag, step, "--resume", step + "/"},
            flag + ": '" + step + "' is a checkpoint, that of --resume");
  }
  refused({"--metrics", step + "/m.jsonl"}, "--metrics: '" + step + "' is a checkpoint");
  refused({"--model", model, "--checkpoint_dir", model + "/"},
          "--checkpoint_dir: '" + model + "/' is the folder of --model");
  refused({"--model", model, "--output", model}, "--output would write over '" + model);
  const std::string config = folder.File("ds.json");
  WriteFile(config, "{\"train_micro_batch_size_per_gpu\": 1}");
  refused({"--config", config, "--metrics", config},
          "--metrics would write over '" + config + "' of --config");
  CHECK(names(step) == before);
  CHECK(names(model) == weights);
}

TEST_CASE("zero-train --output: what a killed run has left goes and what is used stays",
          "[programs]") {
  const TrainingFolder folder;
  const std::string output = folder.File("output"), left = output + "/.saving-0123456789abcdef";
  fs::create_directories(left);
  WriteFile(left + "/model.safetensors", "half");
  {
    const auto lock = FolderLock::Take(output);
    REQUIRE_OK(lock.status());
    CHECK(folder.Train({"--output", output}).status == 1);
    CHECK(fs::exists(left));
  }
  const Outcome trained = folder.Train({"--output", output, "--steps=1"});
  INFO(trained.err);
  CHECK(trained.status == 0);
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(output + "/model.safetensors"));
}

TEST_CASE("zero-train: a run that keeps nothing says so once", "[programs]") {
  const TrainingFolder folder;
  const std::string note = "what is trained is not kept";
  const Outcome nothing = folder.Train({"--steps=1", "--ranks=2"});
  const size_t at = nothing.out.find(note);
  REQUIRE(at != std::string::npos);
  CHECK(nothing.out.find(note, at + 1) == std::string::npos);
  for (const char* flag : {"--output", "--checkpoint_dir"}) {
    CHECK_THAT(folder.Train({"--steps=1", flag, folder.File("kept")}).out,
               !ContainsSubstring(note));
  }
}

}  // namespace
}  // namespace zero::programs
