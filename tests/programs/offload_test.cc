// zero-train with states and weights in memory of the host or on a disk.
#include <sys/mount.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

using Flags = std::vector<std::string>;

Flags Joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// A folder to train in, and one on the disk.
struct Place {
  TrainingFolder folder;
  std::string disk;

  Place() : disk(folder.File("disk")) { fs::create_directory(disk); }
  Flags Nvme(Flags flags) const {
    return Joined(std::move(flags), {"--offload_optimizer=nvme", "--nvme_path", disk});
  }
};

// What a step computes, as text.
std::vector<std::string> Numbers(const std::string& metrics) {
  std::vector<std::string> all;
  for (const char* key : {"step", "loss", "learning_rate", "grad_norm", "evaluation_loss"}) {
    for (const std::string& text : TextOf(key, metrics)) all.push_back(text);
  }
  return all;
}

TEST_CASE("zero-train: offloading changes no loss and no norm in any stage",
          "[programs][offload]") {
  const Place place;
  const int stage = GENERATE(1, 2, 3);
  const int accumulation = GENERATE(1, 3);
  const Flags flags = {"--ranks=2",
                       absl::StrCat("--stage=", stage),
                       "--evaluate_every=2",
                       absl::StrCat("--accumulation=", accumulation),
                       "--evaluate_batches=1",
                       "--weight_decay=0.1"};
  const std::string kept = place.folder.Metrics(flags);
  REQUIRE(Numbers(kept).size() == 4 * 4 + 2);
  std::vector<Flags> cases = {{"--offload_optimizer=cpu"},
                              {"--offload_optimizer=cpu", "--offload_ratio=0.3"},
                              place.Nvme({}),
                              place.Nvme({"--offload_ratio=0.6", "--threads=1"})};
  if (stage >= 2) cases.push_back(place.Nvme({"--offload_gradients=false"}));
  if (stage == 3) {
    cases.push_back({"--offload_optimizer=cpu", "--offload_param=cpu", "--prefetch=0"});
    cases.push_back(place.Nvme({"--offload_param=nvme"}));
    cases.push_back(place.Nvme({"--offload_param=cpu", "--offload_ratio=0.5"}));
    cases.push_back({"--offload_optimizer=cpu", "--offload_param=nvme", "--nvme_path", place.disk});
  }
  for (const Flags& offload : cases) {
    CAPTURE(stage, accumulation, offload);
    CHECK(Numbers(place.folder.Metrics(Joined(flags, offload))) == Numbers(kept));
    CHECK(fs::is_empty(place.disk));
  }
}

TEST_CASE("zero-train: units that step during backward change no loss and no norm",
          "[programs][offload]") {
  const Place place;
  const int stage = GENERATE(1, 2, 3);
  const Flags flags = {"--ranks=2",          absl::StrCat("--stage=", stage),
                       "--evaluate_every=2", "--evaluate_batches=1",
                       "--accumulation=2",   "--clip=0"};
  const std::string kept = place.folder.Metrics(flags);
  REQUIRE(Numbers(kept).size() == 4 * 4 + 2);
  for (const Flags& offload :
       {Flags{"--offload_optimizer=cpu", "--offload_ratio=0.6"}, place.Nvme({})}) {
    CAPTURE(stage, offload);
    const Flags early = Joined(Joined(flags, offload), {"--check_overflow=false"});
    CHECK(Numbers(place.folder.Metrics(early)) == Numbers(kept));
    CHECK(fs::is_empty(place.disk));
  }
}

TEST_CASE("zero-train: metrics and first lines say what is offloaded where",
          "[programs][offload]") {
  const Place place;
  const std::string metrics = place.folder.File("metrics.jsonl");
  const auto run = [&](const Flags& flags) {
    const Outcome outcome =
        place.folder.Train(Joined(flags, {"--ranks=2", "--stage=3", "--metrics", metrics}));
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return outcome.out;
  };
  const auto used = [&](const std::string& category) {
    return ReadMetrics(ReadFile(metrics)).back().current.at(category);
  };
  CHECK_THAT(run({}), !ContainsSubstring("offload"));
  const int64_t states = used("optimizer_states"), gradients = used("gradients");
  CHECK(states > 0);
  CHECK(used("host_states") == 0);
  CHECK_THAT(run({"--offload_optimizer=cpu", "--offload_param=cpu", "--threads=3"}),
             ContainsSubstring("\noffload     optimizer cpu, parameters cpu: ") &&
                 ContainsSubstring(" MB of the host's memory for each rank; updated by 3 threads "
                                   "of the host\nstage 3 ") &&
                 ContainsSubstring(" of it on the host: "));
  CHECK(used("optimizer_states") == 0);
  CHECK(used("gradients") == 0);
  CHECK(used("weights") == 0);
  CHECK(used("host_states") >= states + gradients);
  CHECK(used("host_weights") > 0);
  CHECK_THAT(run(place.Nvme({"--offload_ratio=0.5", "--nooffload_gradients", "--threads=1"})),
             ContainsSubstring("\noffload     optimizer nvme without gradients, parameters none, "
                               "0.5 of each slice: ") &&
                 ContainsSubstring(" MB in " + place.disk + " for each rank; updated by 1 thread"));
  CHECK(used("optimizer_states") > 0);
  CHECK(used("optimizer_states") < states);
  CHECK(used("gradients") == gradients);
  CHECK(used("host_states") == 0);
  CHECK(used("host_slots") > 0);
}

TEST_CASE("zero-train: the first lines say whether units step during backward",
          "[programs][offload]") {
  const Place place;
  const bool compares = GENERATE(false, true);
  const auto says = [&](const Flags& flags) {
    Flags all = {"--ranks=2", "--stage=2", "--offload_optimizer=cpu", "--steps=3", "--threads=2"};
    if (compares) {
      all = {"--ranks=2",        "--offload_optimizer=cpu",
             "--compare_stages", "--repeats=1",
             "--steps=3",        "--threads=2"};
    }
    const Outcome outcome = place.folder.Train(Joined(all, flags));
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("updated by 2 threads of the host"));
    return outcome.out.find(" threads of the host; units step during backward\n") !=
           std::string::npos;
  };
  CHECK(says({"--clip=0", "--check_overflow=false"}));
  CHECK_FALSE(says({"--clip=0"}));
  CHECK_FALSE(says({"--clip=1", "--check_overflow=false"}));
}

TEST_CASE("zero-train --compare_stages: with offloading every count is the plan's",
          "[programs][offload]") {
  const Place place;
  const Outcome outcome = place.folder.Train(
      place.Nvme({"--ranks=2", "--compare_stages", "--repeats=1", "--offload_param=cpu",
                  "--offload_ratio=0.5", "--offload_gradients=true"}));
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  for (const char* words :
       {"offload     optimizer nvme, parameters cpu", "note        stage 0 offloads nothing",
        "\nhost_slots ", "\nhost_weights ", "every count of bytes is the plan's"}) {
    CHECK_THAT(outcome.out, ContainsSubstring(words));
  }
  CHECK(fs::is_empty(place.disk));
}

TEST_CASE("zero-train: a configuration file that offloads does what the flags do",
          "[programs][offload]") {
  const Place place;
  const Flags usual = {"--ranks=2", "--accumulation=2"};
  const std::string flags = place.folder.Metrics(
      Joined(usual, place.Nvme({"--offload_param=cpu", "--offload_ratio=0.5", "--stage=3"})));
  const std::string file = place.folder.File("ds.json");
  WriteFile(
      file,
      absl::StrCat(
          R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": ")",
          place.disk, R"(", "ratio": 0.5},
      "offload_param": {"device": "auto"}}})"));
  const std::string both =
      place.folder.Metrics(Joined(usual, {"--config", file, "--offload_param=cpu"}));
  CHECK(Numbers(both) == Numbers(flags));
  REQUIRE(ReadMetrics(both).size() == 4);
  CHECK(ReadMetrics(both).back().current == ReadMetrics(flags).back().current);
  const Outcome printed = place.folder.Train(
      Joined(usual, {"--config", file, "--offload_param=cpu", "--offload_gradients=false"}));
  for (const char* words :
       {"\"ratio\": 0.5", "\"nvme_path\": ", "and flags   --offload_gradients false "}) {
    CHECK_THAT(printed.out, ContainsSubstring(words));
  }
  const Outcome refused = place.folder.Train(
      Joined(usual, {"--config", file, "--offload_optimizer=cpu", "--offload_ratio=0.25"}));
  CHECK(refused.status == 1);
  CHECK(LinesOf(refused.err) == 2);
  CHECK_THAT(refused.err, ContainsSubstring("but --offload_optimizer is \"cpu\"") &&
                              ContainsSubstring("but --offload_ratio is 0.25"));
}

// Nothing is made, on the disk neither.
void CheckRefused(const Place& place, const Flags& flags, int status, const Flags& words) {
  place.folder.CheckRefused(flags, status, words);
  if (fs::is_directory(place.disk)) CHECK(fs::is_empty(place.disk));
}

TEST_CASE("zero-train: flags that offload nothing or too much are refused by name",
          "[programs][offload]") {
  const Place place;
  const auto refused = [&](const Flags& flags, const Flags& words) {
    CheckRefused(place, flags, 2, words);
  };
  const std::string cpu = "--offload_optimizer=cpu";
  refused({"--offload_optimizer=gpu"}, {"--offload_optimizer is 'gpu'", "none or cpu or nvme"});
  refused({"--offload_param=disk"}, {"--offload_param is 'disk'"});
  refused({cpu, "--stage=0"}, {"--offload_optimizer is cpu", "--stage is 0", "1, 2 or 3"});
  refused({cpu, "--offload_param=cpu", "--stage=2"}, {"--offload_param is cpu", "--stage is 2"});
  refused({"--offload_param=cpu"}, {"--offload_param is cpu", "--offload_optimizer is none"});
  refused({"--offload_optimizer=nvme"}, {"--nvme_path is missing", "--offload_optimizer nvme"});
  refused({cpu, "--offload_param=nvme"}, {"--nvme_path is missing", "--offload_param nvme"});
  refused(place.Nvme({"--nvme_path="}), {"--nvme_path is given twice"});
  refused({"--offload_optimizer=nvme", "--nvme_path="}, {"--nvme_path is empty"});
  for (const char* ratio : {"0", "1.5", "-1", "half"}) {
    refused({cpu, absl::StrCat("--offload_ratio=", ratio)}, {"--offload_ratio is '", "to 1"});
  }
  const std::string belongs = "is given, but has no effect: it belongs to --offload_optimizer";
  refused({"--offload_ratio=0.5"}, {"--offload_ratio " + belongs});
  refused({"--offload_gradients"}, {"--offload_gradients " + belongs});
  refused({cpu, "--stage=1", "--offload_gradients=false"}, {"--stage 2 or 3"});
  refused({cpu, "--nvme_path", place.disk}, {"--nvme_path " + belongs + " nvme"});
  refused({"--host_memory=1GB"}, {"--host_memory " + belongs});
  refused({cpu, "--host_memory=much"}, {"--host_memory is 'much'"});
}

TEST_CASE("zero-train: a folder that cannot take what is offloaded is one line",
          "[programs][offload]") {
  Place place;
  const std::string file = place.folder.data();
  CheckRefused(place, {"--offload_optimizer=nvme", "--nvme_path=/no/such"}, 1,
               {"--nvme_path: '/no/such' does not exist"});
  CheckRefused(place, {"--offload_optimizer=nvme", "--nvme_path", file}, 1,
               {"--nvme_path: '", "is no folder"});
  CheckRefused(place, {"--offload_optimizer=nvme", "--nvme_path=/proc"}, 1,
               {"--nvme_path: '/proc' cannot hold a file, and must be on a disk: "});
  if (mount("tmpfs", place.disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    WARN("a small tmpfs cannot be mounted here: not tried");
    return;
  }
  CheckRefused(place, place.Nvme({"--ranks=2"}), 1, {place.disk, "rank "});
  umount(place.disk.c_str());
}

TEST_CASE("zero-train: memory that the flags allow is not passed and what helps is said",
          "[programs][offload]") {
  const Place place;
  const Flags cpu = {"--offload_optimizer=cpu", "--stage=3"};
  CheckRefused(
      place, Joined(cpu, {"--ranks=2", "--host_memory=300KB"}), 1,
      {"--host_memory is 300KB", "2 ranks x ", "host_states ", " too much; it fits with "});
  CheckRefused(place, Joined(cpu, {"--device_memory=100KB"}), 1,
               {"--device_memory is 100KB", "on its device in stage 3 (", "more --ranks",
                " too much; it fits with --device_memory "});
  // What is said to fit does, and a hundredth more does not.
  const Flags little = Joined(cpu, {"--ranks=2", "--offload_param=cpu"});
  const std::string message = place.folder.Train(Joined(little, {"--host_memory=300KB"})).err;
  const auto said = [&](const std::string& flag) {
    const size_t at = message.rfind(flag + " ");
    CAPTURE(message, flag);
    REQUIRE(at != std::string::npos);
    const size_t value = at + flag.size() + 1;
    return message.substr(value, message.find_first_of(",;\n", value) - value);
  };
  CHECK(place.folder.Train(Joined(little, {"--host_memory", said("--host_memory")})).status == 0);
  const std::string ratio = said("--offload_ratio");
  const auto with_ratio = [&](double value) {
    return place.folder
        .Train(Joined(little, {"--host_memory=300KB", absl::StrCat("--offload_ratio=", value)}))
        .status;
  };
  CHECK(with_ratio(std::stod(ratio)) == 0);
  CHECK(with_ratio(std::stod(ratio) + 0.01) == 1);
  CHECK(said("it fits with --host_memory").size() > 0);
  // What is planned is enough, to the byte, for all ranks together.
  const std::string metrics = place.folder.Metrics(Joined(cpu, {"--ranks=2"}));
  int64_t host = 0, device = 0;
  const MetricsRecord last = ReadMetrics(metrics).back();
  for (const auto& [name, bytes] : last.peak) {
    const bool offloaded = name == "host_states" || name == "host_weights" || name == "host_slots";
    host += offloaded ? bytes : 0;
    device += offloaded || name == "host_staging" ? 0 : bytes;
  }
  const auto fits = [&](int64_t host_memory, int64_t device_memory) {
    const Outcome outcome =
        place.folder.Train(Joined(cpu, {"--ranks=2", absl::StrCat("--host_memory=", host_memory),
                                        absl::StrCat("--device_memory=", device_memory)}));
    return outcome.status == 0;
  };
  CHECK(fits(2 * host, device));
  CHECK_FALSE(fits(2 * host - 1, device));
  CHECK_FALSE(fits(2 * host, device - 1));
}

TEST_CASE("zero-train: the lines of metrics have all that the steps moved, the last one too",
          "[programs][offload]") {
  const Place place;
  const bool disk = GENERATE(false, true);
  const Flags flags = disk ? place.Nvme({"--stage=2"}) : Flags{"--offload_optimizer=cpu"};
  const std::vector<std::string> keys = {"bytes_to_device", "bytes_from_device", "bytes_read",
                                         "bytes_written"};
  // Of all lines of a run.
  const auto moved = [&](int steps) {
    const std::string metrics =
        place.folder.Metrics(Joined(flags, {absl::StrCat("--steps=", steps)}));
    std::map<std::string, int64_t> sums;
    for (const std::string& key : keys) {
      const std::vector<std::string> texts = TextOf(key, metrics);
      CHECK(texts.size() == static_cast<size_t>(steps));
      for (const std::string& text : texts) sums[key] += std::stoll(text);
    }
    return sums;
  };
  std::map<std::string, int64_t> one = moved(1);
  CHECK(one["bytes_to_device"] > 0);
  CHECK((one["bytes_written"] > 0) == disk);
  std::map<std::string, int64_t> three = moved(3);
  for (const std::string& key : keys) {
    INFO(key);
    // The first step also uploads some numbers.
    CHECK(three[key] <= 3 * one[key]);
    CHECK(three[key] >= 3 * one[key] - 4096);
  }
}

TEST_CASE("zero-train: a run that ends with an error leaves nothing on the disk",
          "[programs][offload]") {
  const Place place;
  const Outcome outcome = place.folder.Train(place.Nvme(
      {"--ranks=2", "--dtype=fp16", "--loss_scale=1e30", "--offload_param=nvme", "--steps=3"}));
  INFO(outcome.err);
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 1);
  CHECK(fs::is_empty(place.disk));
}

TEST_CASE("zero-train --resume: a checkpoint of another placement goes on bit for bit",
          "[programs][offload][checkpoint]") {
  const Place place;
  const TrainingFolder& folder = place.folder;
  const std::vector<Flags> placements = {
      {},
      {"--offload_optimizer=cpu", "--offload_ratio=0.4"},
      place.Nvme({"--offload_param=cpu"}),
      place.Nvme({"--offload_param=nvme", "--offload_gradients=false", "--offload_ratio=0.7"})};
  const auto run = [&](const std::string& name, const Flags& more) {
    const Outcome outcome = folder.Train(
        Joined(more, {"--ranks=2", "--steps=6", "--accumulation=2", "--metrics",
                      folder.File(name + ".jsonl"), "--checkpoint_dir", folder.File(name)}));
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK_THAT(outcome.out, !ContainsSubstring("note        "));
    return Numbers(ReadFile(folder.File(name + ".jsonl")));
  };
  // All but the manifest, which has the configuration.
  const auto files = [&](const std::string& name) {
    std::map<std::string, std::string> contents;
    const std::string path = absl::StrCat(folder.File(name), "/", CheckpointName(6));
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().filename() == "manifest.json") continue;
      contents[entry.path().filename().string()] = ReadFile(entry.path().string());
    }
    return contents;
  };
  const std::vector<std::string> whole = run("whole", {});
  REQUIRE(whole.size() == 4 * 6);
  REQUIRE(files("whole").size() == 2);
  for (size_t from = 0; from < placements.size(); ++from) {
    const size_t to = (from + 1) % placements.size();
    CAPTURE(placements[from], placements[to]);
    const std::string saved = absl::StrCat("saved", from), resumed = absl::StrCat("resumed", from);
    CHECK(run(saved, Joined(placements[from], {"--save_every=3"})) == whole);
    fs::copy_file(folder.File(saved + ".jsonl"), folder.File(resumed + ".jsonl"));
    CHECK(run(resumed, Joined(placements[to], {"--resume", absl::StrCat(folder.File(saved), "/",
                                                                        CheckpointName(3))})) ==
          whole);
    CHECK(files(resumed) == files("whole"));
    CHECK(fs::is_empty(place.disk));
  }
}

}  // namespace
}  // namespace zero::programs
