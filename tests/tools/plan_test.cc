#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/refusal.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {
namespace {

const std::string kDemo = ZERO_SOURCE_DIR "/examples/models/demo";

TEST_CASE("zero-plan: prints memory and traffic of every stage", "[tools]") {
  const Outcome outcome = RunProgram("zero-plan", {"--model", kDemo, "--ranks", "4"});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  // 3,033,344 parameters without padding at 4 ranks: w = 2, s = 4, o = 12 bytes each.
  CHECK_THAT(outcome.out, ContainsSubstring("3,033,344 parameters in bf16 on 4 ranks"));
  CHECK_THAT(outcome.out, ContainsSubstring("optimizer_states         0.036       0.009       "
                                            "0.009       0.009"));
  CHECK_THAT(outcome.out, ContainsSubstring("gather_weights           0.000       0.005       "
                                            "0.005       0.008"));
}

TEST_CASE("zero-plan: masters and optimizers change the bytes of states", "[tools]") {
  // o = 12 bytes with fp32 masters and two moments; 3,033,344 parameters on one rank.
  const auto states = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", kDemo, "--ranks=1"});
    const Outcome outcome = RunProgram("zero-plan", flags);
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    const size_t at = outcome.out.find("optimizer_states");
    REQUIRE(at != std::string::npos);
    return outcome.out.substr(at + 16, 14);
  };
  CHECK(states({}) == "         0.036");
  CHECK(states({"--master=split"}) == "         0.030");
  CHECK(states({"--master=none", "--optimizer=lion"}) == "         0.012");
  CHECK(states({"--dtype=fp16", "--optimizer=sgd"}) == "         0.012");
}

TEST_CASE("zero-plan: a configuration file does what the same flags do", "[tools]") {
  const auto plan = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", kDemo, "--ranks=2"});
    const Outcome outcome = RunProgram("zero-plan", flags);
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    return outcome.out;
  };
  const std::string file = kDemo + "/deepspeed.json";
  const std::string both = plan({"--config", file, "--accumulation=1"});
  CHECK(both == plan({"--dtype=fp16", "--micro_batch=2"}));
  CHECK(both != plan({"--dtype=fp16"}));
  const Outcome refused = RunProgram(
      "zero-plan", {"--model", kDemo, "--config", file, "--dtype=bf16", "--micro_batch=3"});
  CHECK(refused.status == 1);
  CHECK(LinesOf(refused.err) == 2);
  CHECK_THAT(refused.err, ContainsSubstring("but --micro_batch is 3"));
}

// What it prints with --json.
nlohmann::json PlanOf(const std::string& model, std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--model", ZERO_SOURCE_DIR "/examples/models/" + model, "--json"});
  const Outcome outcome = RunProgram("zero-plan", flags);
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  return nlohmann::json::parse(outcome.out);
}

int64_t Bytes(const nlohmann::json& plan, int stage, const char* category) {
  return plan["stages"][stage]["memory"][category];
}

int64_t Moved(const nlohmann::json& plan, int stage, const char* way) {
  return plan["stages"][stage]["moved"][way];
}

// 6,738,415,616 parameters of 7B, which 8 ranks share without a rest: slices of 842,301,952
// elements. Records have 16 bytes each: gradient, master and moments in fp32. All sections are
// whole blocks of 4096 bytes but those of the last 512 elements.
constexpr int64_t kSlice = 842'301'952;

TEST_CASE("zero-plan: 7B offloaded to the hosts of 8 GPUs takes what a hand computes", "[tools]") {
  const auto plan = PlanOf("llama-7b", {"--ranks=8", "--offload_optimizer=cpu"});
  CHECK(plan["parameters"] == 8 * kSlice);
  CHECK(Bytes(plan, 0, "host_states") == 0);
  CHECK(Bytes(plan, 0, "optimizer_states") == 8 * kSlice * 12);
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    // 16 bytes a parameter over all hosts, as DeepSpeed's estimate has without its factor of 1.5.
    CHECK(Bytes(plan, stage, "host_states") == kSlice * 16 + 4 * 2048);
    CHECK(Bytes(plan, stage, "optimizer_states") == 0);
    CHECK(Bytes(plan, stage, "gradients") == (stage == 1 ? 8 * kSlice * 4 : 0));
    CHECK(Bytes(plan, stage, "weights") == (stage == 3 ? 1 : 8) * kSlice * 2);
    CHECK(plan["stages"][stage]["on_disk"] == 0);
    // fp32 sums out, with some scalars, and bf16 weights back.
    CHECK(Moved(plan, stage, "to_device") == kSlice * 2);
    CHECK(Moved(plan, stage, "from_device") - kSlice * 4 > 0);
    CHECK(Moved(plan, stage, "from_device") - kSlice * 4 < 200);
    CHECK(Moved(plan, stage, "disk_read") == 0);
  }
  const auto both =
      PlanOf("llama-7b", {"--ranks=8", "--offload_optimizer=cpu", "--offload_param=cpu"});
  CHECK(Bytes(both, 3, "weights") == 0);
  // Slices of the 32 layers end in the middle of a block, that of the last unit in its first
  // quarter.
  CHECK(Bytes(both, 3, "host_weights") == kSlice * 2 + 32 * 2048 + 3072);
  CHECK(Bytes(both, 2, "host_weights") == 0);
  // What a rank loads for a gather it sends to 7 others.
  CHECK(7 * Moved(both, 3, "to_device") == both["stages"][3]["wire"]["gather_weights"]);
}

TEST_CASE("zero-plan: 7B offloaded to disks reads and writes what a hand computes", "[tools]") {
  const auto plan =
      PlanOf("llama-7b", {"--ranks=8", "--offload_optimizer=nvme", "--accumulation=4"});
  const int64_t records = kSlice * 16 + 4 * 2048;
  const int64_t gradients = kSlice * 4 + 2048;
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    const int64_t passes = stage == 1 ? 1 : 4;
    CHECK(plan["stages"][stage]["on_disk"] == records);
    CHECK(Bytes(plan, stage, "host_states") == 0);
    CHECK(Moved(plan, stage, "to_device") == kSlice * 2 + (passes - 1) * kSlice * 4);
    CHECK(Moved(plan, stage, "disk_read") == records + (passes - 1) * gradients);
    CHECK(Moved(plan, stage, "disk_written") == records + (passes - 1) * gradients);
  }
  // Half of each slice, which are whole blocks of 128 elements again.
  const auto half = PlanOf("llama-7b", {"--ranks=8", "--offload_optimizer=nvme", "--dtype=fp32",
                                        "--offload_ratio=0.5", "--offload_gradients=false"});
  CHECK(Bytes(half, 2, "gradients") == kSlice * 4);
  CHECK(Bytes(half, 2, "optimizer_states") == kSlice / 2 * 8);
  CHECK(Moved(half, 2, "to_device") == kSlice / 2 * 4);
  // fp32 weights are their own masters, and go to the update too.
  CHECK(Moved(half, 2, "from_device") - 2 * (kSlice / 2 * 4) < 200);
}

TEST_CASE("zero-plan: rows of host and disk are there where something is offloaded", "[tools]") {
  const auto plan = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", kDemo, "--ranks=2"});
    return RunProgram("zero-plan", flags).out;
  };
  const std::vector<std::string> nvme = {"--offload_optimizer=nvme", "--offload_ratio=0.5"};
  const std::string without = plan({});
  const std::string with = plan(nvme);
  for (const char* words : {"\nhost_slots ", "\nall on the host ", "\nin its file ",
                            "\nGB moved in a step ", "\nfrom the device ", "\nread from disk ",
                            "offloaded: optimizer nvme, parameters none, 0.5 of each slice\n"}) {
    CHECK_THAT(with, ContainsSubstring(words));
    CHECK_THAT(without, !ContainsSubstring(words));
  }
  const TemporaryFolder folder;
  const std::string file = folder.File("ds.json");
  WriteFile(file, R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
      "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme",
      "nvme_path": "/nowhere", "ratio": 0.5}}})");
  std::vector<std::string> named = nvme;
  named.push_back("--nvme_path=/nowhere");
  CHECK(plan({"--config", file}) == plan(named));
  CHECK(plan({"--config", file, "--offload_ratio=0.5"}) == plan(named));
  // The disk's folder is needed where the run is, and not for a plan.
  const std::string note = "note: zero-train also needs --nvme_path, a folder on a disk with room ";
  CHECK_THAT(with, ContainsSubstring(note));
  CHECK_THAT(plan(named), !ContainsSubstring(note));
  CHECK(plan({"--config", file, "--offload_ratio=0.4"}).empty());
}

// The alternatives behind "it fits with ", each as flags.
std::vector<std::vector<std::string>> Remedies(const std::string& message) {
  const std::string before = "it fits with ";
  const size_t begin = message.find(before);
  if (begin == std::string::npos) return {};
  const size_t end = message.find_first_of(";\n", begin);
  std::istringstream words(message.substr(begin + before.size(), end - begin - before.size()));
  std::vector<std::vector<std::string>> all(1);
  for (std::string word; words >> word;) {
    if (word == "with") continue;
    if (word == "or") {
      all.emplace_back();
      continue;
    }
    if (word.back() == ',') word.pop_back();
    const bool flag = word.rfind("--", 0) == 0;
    if (flag || all.back().empty()) {
      all.back().push_back(word == "--nvme_path" ? word + "=disk" : word);
    } else {
      all.back().back() += "=" + word;
    }
  }
  return all;
}

// `flags` without those that `others` name too, and those.
std::vector<std::string> Replaced(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& others) {
  const auto name = [](const std::string& flag) { return flag.substr(0, flag.find('=')); };
  std::vector<std::string> all = others;
  for (const std::string& flag : flags) {
    const bool other = std::any_of(others.begin(), others.end(), [&](const std::string& replaced) {
      return name(replaced) == name(flag);
    });
    if (!other) all.push_back(flag);
  }
  return all;
}

TEST_CASE("zero-plan: each alternative that is said to fit does", "[tools]") {
  const std::string demo = "--model=" + kDemo;
  const std::string large = "--model=" ZERO_SOURCE_DIR "/examples/models/llama-7b";
  const std::string cpu = "--offload_optimizer=cpu";
  // With at least so many alternatives.
  const std::vector<std::pair<size_t, std::vector<std::string>>> cases = {
      {1,
       {demo, "--ranks=4", cpu, "--offload_param=cpu", "--host_memory=10MB",
        "--device_memory=5MB"}},
      {2,
       {demo, "--ranks=4", cpu, "--offload_param=cpu", "--host_memory=40MB",
        "--ranks_per_process=4", "--device_memory=24MB"}},
      {3, {large, "--ranks=1", cpu, "--host_memory=64GB", "--device_memory=24GB"}},
      {3,
       {large, "--ranks=1", cpu, "--host_memory=64GB", "--device_memory=24GB",
        "--offload_gradients=false"}},
      {3,
       {large, "--ranks=8", cpu, "--host_memory=100GB", "--device_memory=20GB",
        "--ranks_per_process=8"}},
      {2, {large, "--ranks=1", "--device_memory=24GB"}},
      {2, {large, "--ranks=1", "--device_memory=24GB", cpu, "--offload_ratio=0.3"}},
      {2,
       {large, "--ranks=8", "--device_memory=16GB", cpu, "--offload_ratio=0.2",
        "--host_memory=12GB"}}};
  for (const auto& [least, flags] : cases) {
    const Outcome outcome = RunProgram("zero-plan", flags);
    CAPTURE(flags, outcome.err);
    REQUIRE(outcome.status == 1);
    const auto remedies = Remedies(outcome.err);
    CHECK(remedies.size() >= least);
    for (const std::vector<std::string>& remedy : remedies) {
      CAPTURE(remedy);
      CHECK(RunProgram("zero-plan", Replaced(flags, remedy)).status == 0);
    }
    // Both limits are told of at once.
    for (const char* limit : {"host", "device"}) {
      const Outcome json = RunProgram("zero-plan", Replaced(flags, {"--json"}));
      const bool lacks =
          nlohmann::json::parse(json.out)["stages"][3][std::string(limit) + "_lacks"] > 0;
      const std::string said = std::string("--") + limit + "_memory is ";
      CHECK((outcome.err.find(said) != std::string::npos) == lacks);
    }
  }
}

TEST_CASE("zero-plan: fewer buffers are named only where they are enough", "[tools]") {
  const TemporaryFolder folder;
  const auto message = [&](int buffers, const std::string& host_memory) {
    const std::string file = folder.File("ds.json");
    WriteFile(file, R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
      "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3, "offload_optimizer":
      {"device": "nvme", "nvme_path": ".", "buffer_count": )" +
                        std::to_string(buffers) + "}}}");
    return RunProgram("zero-plan",
                      {"--model", kDemo, "--config", file, "--ranks=4", "--ranks_per_process=4",
                       "--device_memory=22MB", "--host_memory", host_memory})
        .err;
  };
  const std::string fewer = "fewer buffers, offload_optimizer.buffer_count ";
  const std::string some = message(8, "70MB");
  INFO(some);
  const size_t at = some.find(fewer);
  REQUIRE(at != std::string::npos);
  const int enough = std::stoi(some.substr(at + fewer.size()));
  CHECK(enough < 8);
  CHECK(message(enough, "70MB").empty());
  CHECK(message(enough + 1, "70MB").find("host_memory is 70MB") != std::string::npos);
  const std::string none = message(8, "1MB");
  CHECK_THAT(none, ContainsSubstring("it fits with --host_memory"));
  CHECK(none.find("buffer_count") == std::string::npos);
}

TEST_CASE("zero-plan: where offloading is not enough for the device it is said to take less",
          "[tools]") {
  const auto message = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", ZERO_SOURCE_DIR "/examples/models/llama-7b", "--ranks=1",
                               "--device_memory=2GB"});
    return RunProgram("zero-plan", flags).err;
  };
  CHECK_THAT(message({}), ContainsSubstring("; less is taken with --offload_optimizer, "));
  CHECK_THAT(message({"--offload_optimizer=cpu", "--offload_ratio=0.3"}),
             ContainsSubstring("; less is taken with --offload_param, a higher --offload_ratio, "));
  const std::string all = message({"--offload_optimizer=cpu", "--offload_param=cpu"});
  CHECK_THAT(all, ContainsSubstring("; less is taken with more --ranks"));
}

TEST_CASE("zero-plan: wrong input is one line that names the flag or key", "[tools]") {
  const auto refused = [](const std::vector<std::string>& arguments, int status,
                          const std::string& text) {
    CheckRefused(RunProgram("zero-plan", arguments), status, {text});
  };
  refused({}, 2, "--model is missing");
  refused({"--model", kDemo, "--ranks", "0"}, 2, "--ranks");
  refused({"--model", kDemo, "--rank", "4"}, 2, "--ranks");
  refused({"--model", kDemo, "--sequence_length", "257"}, 2, "max_position_embeddings is 256");
  refused({"--model", kDemo, "--dtype", "fp32", "--accumulation_dtype", "bf16"}, 2,
          "--accumulation_dtype");
  refused({"--model", "/no/such/model"}, 1, "--model: ");
  refused({"--model", kDemo, "--offload_param=cpu"}, 2, "--offload_optimizer is none");
  refused({"--model", kDemo, "--offload_ratio=0.5"}, 2, "--offload_ratio is given, but has no");
  refused({"--model", kDemo, "--offload_optimizer=disk"}, 2, "none or cpu or nvme");
}

TEST_CASE("zero-plan: says which stages are within the memory that there is, and what would be",
          "[tools]") {
  const auto run = [](std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--model", ZERO_SOURCE_DIR "/examples/models/llama-7b", "--ranks=8"});
    return RunProgram("zero-plan", flags);
  };
  const Outcome some = run({"--device_memory=80GB"});
  CHECK(some.status == 0);
  CHECK_THAT(some.out, ContainsSubstring("\nwithin --device_memory 80GB\nstage 0           does "
                                         "not fit; the device lacks ") &&
                           ContainsSubstring("\nstage 3           fits; "));
  // 16 bytes a parameter go to the hosts, 107.8 GB to that of 8 ranks.
  const std::vector<std::string> cpu = {"--offload_optimizer=cpu", "--ranks_per_process=8"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), cpu.begin(), cpu.end());
    return run(flags);
  };
  const auto stages = [&](const Outcome& outcome) {
    const nlohmann::json plan = nlohmann::json::parse(outcome.out);
    std::vector<bool> fit;
    for (const auto& stage : plan["stages"]) fit.push_back(stage["fits"]);
    return fit;
  };
  using Fits = std::vector<bool>;
  // Stage 0 offloads nothing.
  CHECK(stages(with({"--host_memory=120GB", "--json"})) == Fits{true, true, true, true});
  CHECK(stages(with({"--host_memory=100GB", "--json"})) == Fits{true, false, false, false});
  const Outcome none = with({"--host_memory=100GB", "--device_memory=20GB"});
  CHECK(none.status == 1);
  CHECK(LinesOf(none.err) == 1);
  CHECK_THAT(none.out, ContainsSubstring("of 8 ranks\nstage 0           does not fit"));
  CHECK_THAT(none.err, ContainsSubstring("zero-plan: no stage fits; of stage 3: --host_memory is "
                                         "100GB, but what is offloaded takes 8 ranks x ") &&
                           ContainsSubstring("--offload_ratio 0.9") &&
                           ContainsSubstring("--offload_optimizer nvme with --nvme_path"));
  const Outcome json = with({"--host_memory=100GB", "--device_memory=20GB", "--json"});
  CHECK(json.status == 1);
  const nlohmann::json report = nlohmann::json::parse(json.out);
  CHECK_THAT(none.err, ContainsSubstring(report["error"].get<std::string>()));
  const auto& last = report["stages"][3];
  CHECK(last["device_lacks"] == last["on_device"].get<int64_t>() - 20'000'000'000);
  CHECK(last["host_lacks"] > 0);
  CHECK(run({"--host_memory=1GB"}).status == 2);
  CHECK(run({"--ranks_per_process=2"}).status == 2);
  CHECK(with({"--host_memory=1GB", "--ranks=4"}).status == 2);
}

TEST_CASE("zero-plan --json: whatever fails prints an object with what was wrong", "[tools]") {
  const auto failed = [](std::vector<std::string> arguments, int status, const std::string& text) {
    arguments.push_back("--json");
    const Outcome outcome = RunProgram("zero-plan", arguments);
    CAPTURE(arguments, outcome.out);
    CHECK(outcome.status == status);
    CHECK(!outcome.err.empty());
    CHECK_THAT(nlohmann::json::parse(outcome.out)["error"].get<std::string>(),
               ContainsSubstring(text));
  };
  failed({}, 2, "--model is missing");
  failed({"--model", kDemo, "--rank", "4"}, 2, "--ranks");
  failed({"--model", "/no/such/model"}, 1, "--model: ");
  failed({"--model", kDemo, "--config", kDemo + "/deepspeed.json", "--dtype=bf16"}, 1, "--dtype");
}

}  // namespace
}  // namespace zero::programs
