// zero-checkpoint inspect, and the program's usage.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/refusal.h"
#include "tests/programs/subprocess.h"
#include "tests/zero/checkpoint_fixture.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

const std::string kProgram = "zero-checkpoint";

CheckpointManifest MakeCheckpoint(const std::string& folder) {
  CheckpointManifest manifest = test::SmallCheckpoint(DType::kBF16);
  test::CutIntoFiles(manifest, 2);
  REQUIRE_OK(test::WriteCheckpoint(folder, manifest));
  return manifest;
}

// One F32 tensor in a file.
void WriteTensor(const std::string& path, const std::string& name,
                 const std::vector<float>& values) {
  SafetensorsTensor tensor;
  tensor.name = name;
  tensor.dtype = "F32";
  tensor.shape = {static_cast<int64_t>(values.size())};
  auto writer = SafetensorsWriter::Create(path, {tensor});
  REQUIRE_OK(writer.status());
  REQUIRE_OK((*writer)->Append(
      {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}));
  REQUIRE_OK((*writer)->Finish());
}

Outcome Inspect(const std::string& path, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments = {"inspect", path};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return RunProgram(kProgram, arguments);
}

nlohmann::json InspectJson(const std::string& path, int status) {
  const Outcome outcome = Inspect(path, {"--json"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == status);
  return nlohmann::json::parse(outcome.out);
}

TEST_CASE("zero-checkpoint --json: whatever fails prints an object with what was wrong",
          "[tools]") {
  const TemporaryFolder folder;
  const std::string nothing = folder.File("nothing"), output = folder.File("out");
  const auto failed = [](std::vector<std::string> arguments, int status, const std::string& text) {
    const Outcome outcome = RunProgram(kProgram, arguments);
    CAPTURE(arguments, outcome.out);
    CHECK(outcome.status == status);
    CHECK(LinesOf(outcome.err) == 1);
    const nlohmann::json report = nlohmann::json::parse(outcome.out);
    CHECK_THAT(report["error"].get<std::string>(), ContainsSubstring(text));
  };
  failed({"inspect", nothing, "--json"}, 1, "no such file or folder");
  failed({"export", nothing, "--output", output, "--json"}, 1, "no such folder");
  failed({"import", nothing, "--output", output, "--json"}, 1, "no such folder");
  failed({"export", nothing, "--json"}, 2, "--output is missing");
  failed({"export", nothing, "--outptu", output, "--json=true"}, 2, "unknown flag '--outptu'");
  failed({"import", "--json"}, 2, "FOLDER is missing");
  failed({"inspct", "x", "--json"}, 2, "unknown subcommand 'inspct'");
  CHECK(RunProgram(kProgram, {"inspect", nothing}).out.empty());
}

TEST_CASE("zero-checkpoint inspect: a folder that has the name of another step is noted",
          "[tools]") {
  const TemporaryFolder folder;
  const std::string path = folder.File("step-00000200");
  MakeCheckpoint(path);
  const std::string note =
      path + ": is called after step 200, but its manifest.json is of step 100";
  CHECK_THAT(Inspect(path).out, ContainsSubstring("\nnote: " + note));
  const nlohmann::json notes = InspectJson(path, 0)["notes"];
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0].get<std::string>(), ContainsSubstring(note));
  const Outcome exported =
      RunProgram(kProgram, {"export", path, "--output", folder.File("weights")});
  CHECK_THAT(exported.out, ContainsSubstring("note: " + note));
  fs::rename(path, folder.File("good"));
  CHECK(InspectJson(folder.File("good"), 0)["notes"].empty());
}

void CheckUnsound(const std::string& path, const std::string& reason) {
  CheckRefused(Inspect(path), 1, {"zero-checkpoint inspect: " + path, reason});
  const nlohmann::json report = InspectJson(path, 1);
  CHECK(report["sound"] == false);
  CHECK_THAT(report["error"].get<std::string>(), ContainsSubstring(reason));
}

TEST_CASE("zero-checkpoint inspect: shows what a checkpoint holds", "[tools]") {
  const TemporaryFolder folder;
  MakeCheckpoint(folder.path());
  const Outcome outcome = Inspect(folder.path());
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(outcome.out,
             ContainsSubstring(folder.path() + ": checkpoint of step 100, sound\n"
                                               "adamw, stage 3, 2 ranks; 97 of 100 steps applied, "
                                               "3 skipped; loss scale 65536\n"
                                               "attribute data.position: \"1234\"\n"));
  CHECK_THAT(
      outcome.out,
      ContainsSubstring("dtype  shape   states                                   parameter\n"
                        "bf16   [6, 5]  master fp32, moment1 fp32, moment2 fp32  embed.weight = "
                        "head.weight\n"));
  CHECK_THAT(outcome.out, ContainsSubstring("bf16   [3, 4]  weight bf16 "));
  CHECK_THAT(outcome.out, ContainsSubstring("5 parameters, 50 elements, "));

  const nlohmann::json report = InspectJson(folder.path(), 0);
  CHECK(report["sound"] == true);
  CHECK(report["kind"] == "checkpoint");
  CHECK(report["step"] == 100);
  CHECK(report["world_size"] == 2);
  CHECK(report["stage"] == 3);
  CHECK(report["counts"]["applied"] == 97);
  CHECK(report["loss_scale"] == 65536);
  CHECK(report["elements"] == 50);
  REQUIRE(report["parameters"].size() == 5);
  CHECK(report["parameters"][0]["name"] == "embed.weight");
  CHECK(report["parameters"][0]["shape"] == nlohmann::json({6, 5}));
  CHECK(report["parameters"][0]["bytes"] == 30 * 12);
  CHECK(report["parameters"][2]["states"] == nlohmann::json({{"weight", "bf16"}}));
  CHECK(report["files"][1]["name"] == "rank-00001-of-00002.safetensors");
  CHECK(report["attributes"]["data.position"] == "1234");
}

TEST_CASE("zero-checkpoint inspect: a checkpoint that is damaged is not sound", "[tools]") {
  const TemporaryFolder folder;
  const CheckpointManifest manifest = MakeCheckpoint(folder.path());
  const std::string path = folder.File(manifest.files[1].name);
  const std::string content = ReadFile(path);
  std::string other = content;
  other.back() = static_cast<char>(other.back() ^ 1);
  WriteFile(path, other);
  CheckUnsound(folder.path(), manifest.files[1].name);
  WriteFile(path, content.substr(1));
  CheckUnsound(folder.path(), manifest.files[1].name);
  fs::remove(path);
  CheckUnsound(folder.path(), "is missing");
  WriteFile(path, content);
  CHECK(Inspect(folder.path()).status == 0);
  const std::string text = ReadFile(folder.File("manifest.json"));
  WriteFile(folder.File("manifest.json"), text.substr(0, text.size() / 2));
  CheckUnsound(folder.path(), "manifest.json: line ");
}

TEST_CASE("zero-checkpoint inspect: shows files and folders of weights", "[tools]") {
  const TemporaryFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  WriteTensor(folder.File("model-00001-of-00002.safetensors"), "a", {1, nan, nan});
  // A tensor that the index does not name is no part of the model.
  WriteFile(folder.File("model-00002-of-00002.safetensors"),
            RawFile("{" + Entry("b", "F32", "1", "0,4") + "," + Entry("c", "U8", "2", "4,6") + "}",
                    "123456"));
  WriteFile(folder.File("model.safetensors.index.json"),
            R"({"metadata": {"total_size": 99}, "weight_map": {
                "a": "model-00001-of-00002.safetensors",
                "b": "model-00002-of-00002.safetensors"}})");
  const Outcome outcome = Inspect(folder.path());
  INFO(outcome.err);
  CHECK(outcome.status == 1);
  CHECK(outcome.err ==
        "zero-checkpoint inspect: " + folder.path() + ": 2 elements are inf or NaN: 2 in 'a'\n");
  CHECK_THAT(outcome.out, ContainsSubstring(folder.path() + ": weights of a model, not sound\n"));
  CHECK_THAT(outcome.out, ContainsSubstring("note: model.safetensors.index.json says"));
  CHECK_THAT(outcome.out, ContainsSubstring("note: 1 tensor of model-00002-of-00002.safetensors"));
  CHECK_THAT(outcome.out,
             ContainsSubstring("dtype  shape  file                              tensor\n"
                               "F32    [3]    model-00001-of-00002.safetensors  a  (2 inf or NaN)\n"
                               "F32    [1]    model-00002-of-00002.safetensors  b\n"
                               "2 tensors, 4 elements, 16 bytes in 2 files\n"));
  const nlohmann::json report = InspectJson(folder.path(), 1);
  CHECK(report["sound"] == false);
  CHECK(report["error"] == "2 elements are inf or NaN: 2 in 'a'");
  CHECK(report["kind"] == "weights");
  CHECK(report["bytes"] == 16);
  CHECK(report["tensors"][0]["non_finite"] == 2);
  CHECK(report["tensors"][1]["file"] == "model-00002-of-00002.safetensors");
  CHECK(report["notes"].size() == 2);

  const Outcome file = Inspect(folder.File("model-00002-of-00002.safetensors"));
  CHECK(file.status == 0);
  CHECK_THAT(file.out, ContainsSubstring(": safetensors file, sound\n"
                                         "dtype  shape  tensor\n"
                                         "F32    [1]    b\n"
                                         "U8     [2]    c\n"
                                         "2 tensors, 3 elements, 6 bytes in 1 file\n"));
}

TEST_CASE("zero-checkpoint inspect: a checkpoint with inf or NaN is not sound", "[tools]") {
  const TemporaryFolder folder;
  CheckpointManifest manifest = test::SmallCheckpoint(DType::kBF16);
  test::CutIntoFiles(manifest, 2);
  const CheckpointParameter& frozen = manifest.parameters[2];
  const int64_t elements = ElementCount(frozen);
  // In fp32 and in bf16, on both ranks.
  REQUIRE_OK(test::WriteCheckpoint(
      folder.path(), manifest, [&](const std::string& state, int64_t parameter, int64_t element) {
        if (parameter == 0 && state == kMoment2State && element == 3) return -HUGE_VALF;
        if (parameter == 2 && (element == 0 || element == elements - 1)) return std::nanf("");
        return test::ExactValue(state, parameter, element);
      }));
  const std::string reason =
      "3 elements are inf or NaN: 1 in 'moment2/embed.weight'; 2 in 'weight/" + frozen.name + "'";
  const Outcome outcome = Inspect(folder.path());
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.out, ContainsSubstring(", not sound\n"));
  CHECK(outcome.err == "zero-checkpoint inspect: " + folder.path() + ": " + reason + "\n");
  const nlohmann::json report = InspectJson(folder.path(), 1);
  CHECK(report["sound"] == false);
  CHECK(report["error"] == reason);
  CHECK(report["non_finite"]["weight/" + frozen.name] == 2);
}

TEST_CASE("zero-checkpoint inspect: names from files do not steer the terminal", "[tools]") {
  const TemporaryFolder folder;
  WriteFile(folder.File("x.safetensors"),
            RawFile("{" + Entry("a\\u001b[2Jb\\n", "U8", "1", "0,1") + "}", "x"));
  const Outcome outcome = Inspect(folder.File("x.safetensors"));
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("U8     [1]    a\\033[2Jb\\n\n"));
}

TEST_CASE("zero-checkpoint inspect: what is neither is named", "[tools]") {
  const TemporaryFolder folder;
  CheckUnsound(folder.File("nothing"), "nothing: no such file or folder; it must be a checkpoint");
  CheckUnsound(folder.path(), "is no checkpoint (no manifest.json) and holds no weights");
  MakeCheckpoint(folder.File("step-00000100"));
  CheckUnsound(folder.path(), "its last checkpoint is " + folder.File("step-00000100"));
  WriteFile(folder.File("page.safetensors"), "<html>404</html>");
  CheckUnsound(folder.File("page.safetensors"), "HTML");
}

TEST_CASE("zero-checkpoint: wrong usage is one line that says what is right", "[tools]") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& text) {
    CheckRefused(RunProgram(kProgram, arguments), 2, {text});
  };
  refused({}, "no subcommand; it must be one of inspect, ");
  refused({"inspct", "x"}, "unknown subcommand 'inspct'");
  refused({"inspect"}, "PATH is missing");
  refused({"inspect", "x", "y"}, "'y' is no flag");
  refused({"inspect", "x", "--jsn"}, "the nearest is --json");
  for (const std::vector<std::string>& help :
       std::vector<std::vector<std::string>>{{"--help"}, {"inspect", "--help"}}) {
    const Outcome outcome = RunProgram(kProgram, help);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("usage: zero-checkpoint "));
    CHECK(outcome.out.find("exit status: 0: all is well; 1: ") != std::string::npos);
  }
}

// Folders of weights from elsewhere: "ok_..." must be sound, "bad_..." not, but for those that are
// read with a note.
TEST_CASE("Weight cases: each folder is sound or is refused as it should be", "[tools]") {
  const char* named = std::getenv("ZERO_INDEX_CASES_DIR");
  const fs::path folder = named != nullptr ? named : ZERO_SOURCE_DIR "/../shared/cases/index";
  if (!fs::is_directory(folder)) {
    WARN("ZERO_INDEX_CASES_DIR is not given: no folders of weights tried");
    return;
  }
  const std::map<std::string, std::string> notes = {
      {"bad_both_single_and_index", "model.safetensors.index.json and what it names are passed"},
      {"bad_total_size", "9999 bytes, but they have 20"}};
  size_t noted = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const Outcome outcome = Inspect(entry.path().string());
    INFO(name << ": " << outcome.out << outcome.err);
    const auto note = notes.find(name);
    if (note != notes.end()) {
      CHECK(outcome.status == 0);
      CHECK_THAT(outcome.out, ContainsSubstring(note->second));
      ++noted;
    } else {
      CHECK(outcome.status == (name.rfind("ok", 0) == 0 ? 0 : 1));
    }
    // Extra tensors and files are no part of the model.
    if (outcome.status == 0) {
      CHECK_THAT(outcome.out, ContainsSubstring("3 tensors, 5 elements, 20 bytes"));
    }
  }
  CHECK(noted == notes.size());
}

}  // namespace
}  // namespace zero::programs
