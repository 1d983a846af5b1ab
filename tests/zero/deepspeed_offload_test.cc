// What becomes of the keys of a DeepSpeed configuration that move states and weights elsewhere.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/catch.h"
#include "zero/deepspeed_config.h"

namespace zero {
namespace {

// Of "zero_optimization" with `keys`, and what the caller has.
absl::StatusOr<DeepSpeedConfig> Parse(const std::string& keys,
                                      const std::map<std::string, CallerValue>& given = {}) {
  ConfigContext context;
  context.given = given;
  return ParseDeepSpeedConfig(
      absl::StrCat("{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 0,\n"
                   "\"zero_optimization\": {",
                   keys, "}}"),
      context, "f");
}

DeepSpeedConfig Parsed(const std::string& keys,
                       const std::map<std::string, CallerValue>& given = {}) {
  CAPTURE(keys);
  auto config = Parse(keys, given);
  REQUIRE_OK(config.status());
  return *std::move(config);
}

// That there is one problem, and what is in its line.
void Refused(const std::string& keys, const std::vector<std::string>& words,
             const std::map<std::string, CallerValue>& given = {}) {
  const absl::Status status = Parse(keys, given).status();
  CAPTURE(keys, status.ToString());
  CHECK(absl::IsInvalidArgument(status));
  const std::string message(status.message());
  CHECK(std::count(message.begin(), message.end(), '\n') == 0);
  for (const std::string& word : words) CHECK_THAT(message, ContainsSubstring(word));
}

bool HasNote(const DeepSpeedConfig& config, const std::string& words) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const std::string& note) { return absl::StrContains(note, words); });
}

const std::map<std::string, CallerValue> kFlags = {
    {"zero_optimization.offload_optimizer.device", {"--offload_optimizer", std::string("nvme")}},
    {"zero_optimization.offload_param.device", {"--offload_param", std::string("cpu")}},
    {"zero_optimization.offload_optimizer.ratio", {"--offload_ratio", 0.5}},
    {"nvme_path", {"--nvme_path", std::string("/disk")}}};

TEST_CASE("DeepSpeedConfig: offloading sets what it says and is printed as it is in force") {
  const DeepSpeedConfig config = Parsed(R"("stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/a", "ratio": 0.3, "pin_memory": false,
                            "buffer_count": 7, "pipeline_read": true, "pipeline_write": true},
      "offload_param": {"device": "CPU", "pin_memory": false})");
  const Offload& offload = config.config.offload;
  CHECK(offload.optimizer == Place::kNvme);
  CHECK(offload.parameters == Place::kHost);
  CHECK(offload.nvme_path == "/a");
  CHECK(offload.ratio == 0.3);
  CHECK(offload.buffer_count == 7);
  CHECK(!offload.pin_memory);
  CHECK(offload.gradients);
  CHECK(config.notes.empty());
  const auto again = ParseDeepSpeedConfig(config.resolved, ConfigContext(), "again");
  REQUIRE_OK(again.status());
  CHECK(again->resolved == config.resolved);
  CHECK(again->config.offload.buffer_count == 7);
  CHECK(again->config.offload.parameters == Place::kHost);
}

TEST_CASE("DeepSpeedConfig: what offloading leaves out has its defaults") {
  const Offload& offload =
      Parsed("\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": \"auto\"}")
          .config.offload;
  CHECK(offload.optimizer == Place::kHost);
  CHECK(offload.parameters == Place::kDevice);
  CHECK(offload.ratio == 1);
  CHECK(offload.buffer_count == 4);
  CHECK(offload.piece_elements == 1 << 20);
  CHECK(offload.pin_memory);
  // Nothing is offloaded, and nothing said about it.
  for (const char* keys :
       {"\"stage\": 0", "\"stage\": 2, \"offload_param\": {\"device\": \"none\"}",
        "\"stage\": 2, \"offload_optimizer\": {\"device\": \"auto\"}"}) {
    const DeepSpeedConfig none = Parsed(keys);
    CHECK(none.config.offload.optimizer == Place::kDevice);
    CHECK(none.notes.empty());
    CHECK_THAT(none.resolved, !ContainsSubstring("offload"));
  }
}

TEST_CASE("DeepSpeedConfig: old forms of offloading are those of the sections") {
  const DeepSpeedConfig config = Parsed(
      "\"stage\": 3, \"cpu_offload\": true, \"cpu_offload_param\": true, "
      "\"cpu_offload_use_pin_memory\": false");
  CHECK(config.config.offload.optimizer == Place::kHost);
  CHECK(config.config.offload.parameters == Place::kHost);
  CHECK(!config.config.offload.pin_memory);
  CHECK(config.notes.size() == 2);
  CHECK(HasNote(config,
                "zero_optimization.cpu_offload is taken as "
                "zero_optimization.offload_optimizer.device \"cpu\""));
  CHECK(HasNote(config, "cpu_offload_param is taken as zero_optimization.offload_param.device"));
  CHECK(Parsed("\"stage\": 0, \"cpu_offload\": false").config.offload.optimizer == Place::kDevice);
  Refused(
      "\"stage\": 1, \"cpu_offload_use_pin_memory\": true, "
      "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}",
      {"cpu_offload_use_pin_memory is the old form", "offload_optimizer.pin_memory"});
  Refused("\"stage\": 1, \"cpu_offload\": true",
          {"cpu_offload is true, but --offload_optimizer is \"nvme\""},
          {*kFlags.find("zero_optimization.offload_optimizer.device"), *kFlags.find("nvme_path")});
}

TEST_CASE("DeepSpeedConfig: flags fill in what a file leaves out of offloading") {
  const Offload& offload = Parsed("\"stage\": 3", kFlags).config.offload;
  CHECK(offload.optimizer == Place::kNvme);
  CHECK(offload.parameters == Place::kHost);
  CHECK(offload.ratio == 0.5);
  CHECK(offload.nvme_path == "/disk");
  CHECK(Parsed("\"stage\": 3, \"offload_optimizer\": {\"device\": \"auto\", \"nvme_path\": "
               "\"auto\", \"ratio\": 0.5}",
               kFlags)
            .config.offload.nvme_path == "/disk");
  Refused("\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}",
          {"offload_optimizer.device is \"cpu\", but --offload_optimizer is \"nvme\""}, kFlags);
  Refused("\"stage\": 3, \"offload_optimizer\": {\"ratio\": 0.25}",
          {"ratio is 0.25, but --offload_ratio is 0.5"}, kFlags);
  Refused("\"stage\": 3, \"offload_optimizer\": {\"nvme_path\": \"/other\"}",
          {"nvme_path is \"/other\", but --nvme_path is \"/disk\""}, kFlags);
  Refused("\"stage\": 2", {"--offload_param is cpu", "zero_optimization.stage 3, not 2"}, kFlags);
}

TEST_CASE("DeepSpeedConfig: what cannot be offloaded is refused by key") {
  const auto optimizer = [](int stage, const std::string& keys) {
    return absl::StrCat("\"stage\": ", stage, ", \"offload_optimizer\": {", keys, "}");
  };
  const auto both = [](const std::string& states, const std::string& weights) {
    return absl::StrCat("\"stage\": 3, \"offload_optimizer\": {", states, "}, \"offload_param\": {",
                        weights, "}");
  };
  const std::string cpu = "\"device\": \"cpu\"";
  const std::string nvme = "\"device\": \"nvme\", \"nvme_path\": \"/a\"";
  Refused(optimizer(0, cpu), {"offload_optimizer.device is cpu", "stage 1, 2 or 3, not 0"});
  Refused("\"cpu_offload\": true", {"cpu_offload is true", "stage 1, 2 or 3, not 0"});
  Refused("\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}",
          {"offload_param.device is cpu", "zero_optimization.stage 3, not 2"});
  Refused("\"stage\": 2, \"cpu_offload_param\": true", {"cpu_offload_param is true", "not 2"});
  Refused("\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}",
          {"offload_param.device is cpu, but zero_optimization.offload_optimizer.device is none"});
  Refused(both("\"device\": \"none\"", nvme), {"offload_param.device is nvme", "device is none"});
  Refused(optimizer(3, "\"device\": \"nvme\""), {"offload_optimizer.nvme_path is missing"});
  Refused(optimizer(3, "\"device\": \"nvme\", \"nvme_path\": \"\""), {"nvme_path is missing"});
  Refused(optimizer(3, "\"device\": \"nvme\", \"nvme_path\": null"), {"nvme_path is missing"});
  Refused(both(cpu, "\"device\": \"nvme\""), {"offload_param.nvme_path is missing"});
  Refused(
      both(nvme, "\"device\": \"nvme\", \"nvme_path\": \"/b\""),
      {"offload_param.nvme_path is \"/b\"", "offload_optimizer.nvme_path is \"/a\"", "one folder"});
  Refused(optimizer(3, "\"device\": \"gpu\""), {"\"gpu\"", "none or cpu or nvme"});
  for (const char* ratio : {"2", "0", "-0.5"}) {
    Refused(optimizer(1, absl::StrCat(cpu, ", \"ratio\": ", ratio)),
            {"offload_optimizer.ratio is ", "above 0 and at most 1"});
  }
  Refused(optimizer(1, cpu + ", \"buffer_count\": 1"), {"buffer_count is 1", "from 2 to 1024"});
  Refused(optimizer(3, cpu + ", \"pin_memory\": 3"), {"pin_memory is 3", "true or false"});
  Refused(optimizer(3, "\"device\": \"nvme\", \"nvme_path\": 3"), {"nvme_path is 3"});
  Refused(optimizer(3, cpu + ", \"buffers\": 3"),
          {"\"zero_optimization.offload_optimizer.buffers"});
}

TEST_CASE("DeepSpeedConfig: what offloading does otherwise is named with the reason") {
  const DeepSpeedConfig config = Parsed(R"("stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/a", "pipeline_read": false,
                            "fast_init": false, "super_offload": false, "cpuadam_cores_perc": 0.8},
      "offload_param": {"device": "cpu", "nvme_path": "/b", "buffer_count": 5, "buffer_size": 1e8,
                        "max_in_cpu": 1e9, "pin_memory": false})");
  CHECK(config.config.offload.nvme_path == "/a");
  CHECK(config.config.offload.buffer_count == 4);
  CHECK(config.config.offload.piece_elements == 1 << 20);
  CHECK(!config.config.offload.pin_memory);
  for (const char* words :
       {"offload_optimizer.pipeline_read is ignored: reads, updates and writes",
        "offload_optimizer.fast_init is ignored", "cpuadam_cores_perc is ignored",
        "offload_param.nvme_path is not used", "offload_param.buffer_count is ignored",
        "offload_param.buffer_size is ignored: weights move in pieces of 1048576 elements",
        "max_in_cpu is ignored"}) {
    CHECK(HasNote(config, words));
  }
  CHECK(config.notes.size() == 7);
  const DeepSpeedConfig pinned = Parsed(R"("stage": 3,
      "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "cpu", "pin_memory": false})");
  CHECK(pinned.config.offload.pin_memory);
  CHECK(HasNote(pinned, "offload_param.pin_memory is false, but all memory of the host is alike"));
  const DeepSpeedConfig none =
      Parsed("\"stage\": 3, \"offload_optimizer\": {\"ratio\": 0.5, \"buffer_count\": 6}");
  CHECK(none.config.offload.ratio == 1);
  CHECK(HasNote(none, "offload_optimizer.ratio is not used: no states are offloaded"));
  CHECK(HasNote(none, "offload_optimizer.buffer_count is not used"));
}

}  // namespace
}  // namespace zero
