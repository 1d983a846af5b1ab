// The text of manifest.json, and everything that can be wrong with it.
#include "zero/save/checkpoint_manifest.h"

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/checkpoint_fixture.h"

namespace zero::test {
namespace {

CheckpointManifest CutCheckpoint(int ranks) {
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  CutIntoFiles(manifest, ranks);
  return manifest;
}

void CheckSame(const CheckpointManifest& a, const CheckpointManifest& b) {
  CHECK(a.step == b.step);
  CHECK(a.counts.steps == b.counts.steps);
  CHECK(a.counts.applied == b.counts.applied);
  CHECK(a.counts.last_applied_step == b.counts.last_applied_step);
  CHECK(a.counts.skipped == b.counts.skipped);
  CHECK(a.counts.consecutive_skips == b.counts.consecutive_skips);
  CHECK(a.counts.loss_scale == b.counts.loss_scale);
  CHECK(a.counts.hysteresis == b.counts.hysteresis);
  CHECK(a.counts.iterations == b.counts.iterations);
  CHECK(a.counts.last_overflow == b.counts.last_overflow);
  CHECK(a.counts.clean == b.counts.clean);
  CHECK(a.rounding_seed == b.rounding_seed);
  CHECK(a.world_size == b.world_size);
  CHECK(a.stage == b.stage);
  CHECK(a.optimizer == b.optimizer);
  CHECK(a.weight_rounding == b.weight_rounding);
  CHECK(a.configuration == b.configuration);
  CHECK(a.attributes == b.attributes);
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (size_t p = 0; p < a.parameters.size(); ++p) {
    CHECK(a.parameters[p].name == b.parameters[p].name);
    CHECK(a.parameters[p].unit == b.parameters[p].unit);
    CHECK(a.parameters[p].shape == b.parameters[p].shape);
    CHECK(a.parameters[p].dtype == b.parameters[p].dtype);
    CHECK(a.parameters[p].trainable == b.parameters[p].trainable);
    CHECK(a.parameters[p].aliases == b.parameters[p].aliases);
    CHECK(a.parameters[p].states == b.parameters[p].states);
  }
  REQUIRE(a.files.size() == b.files.size());
  for (size_t f = 0; f < a.files.size(); ++f) {
    CHECK(a.files[f].name == b.files[f].name);
    CHECK(a.files[f].bytes == b.files[f].bytes);
    CHECK(a.files[f].checksums == b.files[f].checksums);
    REQUIRE(a.files[f].pieces.size() == b.files[f].pieces.size());
    for (size_t i = 0; i < a.files[f].pieces.size(); ++i) {
      CHECK(a.files[f].pieces[i].parameter == b.files[f].pieces[i].parameter);
      CHECK(a.files[f].pieces[i].first == b.files[f].pieces[i].first);
      CHECK(a.files[f].pieces[i].count == b.files[f].pieces[i].count);
    }
  }
}

TEST_CASE("Manifest: what is written is read back, every field of it", "[save]") {
  for (const int ranks : {1, 2, 8}) {
    CheckpointManifest manifest = CutCheckpoint(ranks);
    manifest.files[0].bytes = (int64_t{2} << 20) + 1;
    manifest.files[0].checksums = {0x00000001, 0xe3069283, 0xFFFFFFFF};
    manifest.counts.loss_scale = 0.1f;
    const auto read = ParseManifest(FormatManifest(manifest));
    REQUIRE_OK(read.status());
    CheckSame(*read, manifest);
  }
}

TEST_CASE("Manifest: a model without parameters and attributes is read back", "[save]") {
  CheckpointManifest manifest = SmallCheckpoint(DType::kF32);
  manifest.parameters.clear();
  manifest.attributes.clear();
  manifest.configuration.clear();
  CutIntoFiles(manifest, 2);
  const auto read = ParseManifest(FormatManifest(manifest));
  REQUIRE_OK(read.status());
  CheckSame(*read, manifest);
}

// `text` with `to` wherever `from` stands.
std::string Replaced(const std::string& text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return absl::StrReplaceAll(text, {{from, to}});
}

void CheckRefused(const std::string& text, const std::string& wanted) {
  INFO(text);
  const auto read = ParseManifest(text);
  INFO(read.status().ToString());
  CHECK(absl::IsDataLoss(read.status()));
  CHECK_THAT(std::string(read.status().message()), ContainsSubstring(wanted));
}

// One of `ranks` files after `change`.
void CheckRefused(int ranks, absl::FunctionRef<void(CheckpointManifest&)> change,
                  const std::string& wanted) {
  CheckpointManifest manifest = CutCheckpoint(ranks);
  change(manifest);
  CheckRefused(FormatManifest(manifest), wanted);
}

TEST_CASE("Manifest: each key that is missing is named", "[save]") {
  const std::string text = FormatManifest(CutCheckpoint(1));
  for (const std::string key : {"format",
                                "written_by",
                                "step",
                                "world_size",
                                "stage",
                                "optimizer",
                                "weight_rounding",
                                "counts",
                                "counts.steps",
                                "counts.applied",
                                "counts.last_applied_step",
                                "counts.skipped",
                                "counts.consecutive_skips",
                                "loss_scale",
                                "loss_scale.scale",
                                "loss_scale.hysteresis",
                                "loss_scale.iterations",
                                "loss_scale.last_overflow",
                                "loss_scale.clean",
                                "random",
                                "random.rounding_seed",
                                "configuration",
                                "layout",
                                "layout.parameter_alignment",
                                "layout.slice_alignment",
                                "parameters",
                                "parameters[0].name",
                                "parameters[0].unit",
                                "parameters[0].shape",
                                "parameters[0].dtype",
                                "parameters[0].trainable",
                                "parameters[0].aliases",
                                "parameters[0].states",
                                "files",
                                "files[0].name",
                                "files[0].bytes",
                                "files[0].block_bytes",
                                "files[0].crc32c",
                                "files[0].pieces",
                                "attributes",
                                "manifest_crc32c"}) {
    // Renamed where it stands: after the key that its path names before it.
    size_t from = 0;
    std::string last = key;
    const size_t dot = key.find('.');
    if (dot != std::string::npos) {
      last = key.substr(dot + 1);
      from = text.find(absl::StrCat("\"", key.substr(0, key.find_first_of("[.")), "\":"));
    }
    const size_t at = text.find(absl::StrCat("\"", last, "\":"), from);
    REQUIRE(at != std::string::npos);
    std::string other = text;
    other.replace(at + 1, last.size(), std::string(last.size(), 'x'));
    CheckRefused(other, absl::StrCat(key, " is missing"));
  }
}

TEST_CASE("Manifest: keys that are unknown or occur twice are refused", "[save]") {
  const std::string text = FormatManifest(CutCheckpoint(1));
  CheckRefused(Replaced(text, "\"step\":", "\"more\": 1, \"step\":"), "unknown key \"more\"");
  CheckRefused(Replaced(text, "\"unit\":", "\"group\": 1, \"unit\":"),
               "parameters[0] has an unknown key \"group\"");
  CheckRefused(Replaced(text, "\"step\":", "\"step\": 1, \"step\":"), "key \"step\" occurs twice");
}

TEST_CASE("Manifest: a text that is cut short is refused wherever it ends", "[save]") {
  const std::string text = FormatManifest(CutCheckpoint(2));
  for (size_t end = 0; end + 2 < text.size(); ++end) {
    const auto read = ParseManifest(text.substr(0, end));
    REQUIRE(absl::IsDataLoss(read.status()));
  }
}

TEST_CASE("Manifest: values of the wrong kind or size are named with their place", "[save]") {
  const std::string text = FormatManifest(CutCheckpoint(1));
  const auto with = [&](const std::string& from, const std::string& to) {
    return Replaced(text, from, to);
  };
  CheckRefused("[]", "the document");
  CheckRefused("", "no value");
  CheckRefused(with("\"step\": 100", "\"step\": -1"), "step is -1; it must be a whole number");
  CheckRefused(with("\"step\": 100", "\"step\": 1.5"), "step is 1.5");
  CheckRefused(with("\"step\": 100", "\"step\": \"100\""), "(line 4 column 11)");
  CheckRefused(with("\"step\": 100", "\"step\": 9223372036854775808"), "step is");
  CheckRefused(with("\"stage\": 3", "\"stage\": 4"), "from 0 to 3");
  CheckRefused(with("\"world_size\": 1", "\"world_size\": 0"), "world_size is 0");
  CheckRefused(with("\"adamw\"", "\"adamx\""), "adamw, adam, sgd, lion");
  CheckRefused(with("\"nearest_even\"", "\"up\""), "weight_rounding");
  CheckRefused(with("\"scale\": 65536", "\"scale\": 0"), "loss_scale.scale must be positive");
  CheckRefused(with("\"scale\": 65536", "\"scale\": NaN"), "expected a value, not 'NaN'");
  CheckRefused(with("\"scale\": 65536", "\"scale\": 1e300"), "loss_scale.scale must be");
  CheckRefused(with("\"rounding_seed\": 18364758544493064720", "\"rounding_seed\": -1"),
               "random.rounding_seed is -1");
  CheckRefused(with("\"shape\": [6, 5]", "\"shape\": [6, -5]"), "parameters[0].shape[1] is -5");
  CheckRefused(with("\"shape\": [6, 5]", "\"shape\": [4294967296, 4294967296]"),
               "parameters[0].shape has too many elements");
  CheckRefused(with("\"dtype\": \"bf16\"", "\"dtype\": \"int8\""), "parameters[0].dtype");
  CheckRefused(with("\"trainable\": true", "\"trainable\": 1"), "must be true or false");
  CheckRefused(with("\"data.position\": \"1234\"", "\"data.position\": 1234"),
               "attributes[\"data.position\"]");
  CheckRefused(with("\"block_bytes\": 1048576", "\"block_bytes\": 4096"), "files[0].block_bytes");
  CheckRefused(with("[0, 0, 30]", "[0, 0]"), "files[0].pieces[0] does not have three numbers");
}

TEST_CASE("Manifest: a digit that has changed is noticed whatever it says", "[save]") {
  const std::string text = FormatManifest(CutCheckpoint(2));
  const auto with = [&](const std::string& from, const std::string& to) {
    return Replaced(text, from, to);
  };
  CheckRefused(with("\"applied\": 97", "\"applied\": 96"), "manifest_crc32c is \"");
  CheckRefused(with("\"stage\": 3", "\"stage\": 2"), "the manifest is damaged");
  CheckRefused(with("embed.weight", "embed.Weight"), "the manifest is damaged");
  CheckRefused(with("\"format\": 1,", "\"format\": 1, "), "the manifest is damaged");
  // After the checksum there is nothing to change.
  const size_t at = text.find(",\n  \"attributes\"");
  const size_t own = text.find(",\n  \"manifest_crc32c\"");
  REQUIRE(own != std::string::npos);
  const std::string moved = text.substr(0, at) + text.substr(own, text.size() - 3 - own) +
                            text.substr(at, own - at) + "\n}\n";
  CheckRefused(moved, "manifest_crc32c is not the last key");
}

TEST_CASE("Manifest: a newer format is unimplemented whatever else it says", "[save]") {
  for (const std::string text : {"{\"format\": 2}", "{\"format\": 7, \"new\": []}"}) {
    CHECK(absl::IsUnimplemented(ParseManifest(text).status()));
  }
  CheckRefused("{\"format\": 0}", "format is 0");
}

TEST_CASE("Manifest: names of parameters and files occur once", "[save]") {
  CheckRefused(
      2, [](CheckpointManifest& m) { m.parameters[1].name = "embed.weight"; },
      "parameters[1] has the name \"embed.weight\", which occurs twice");
  CheckRefused(
      2, [](CheckpointManifest& m) { m.parameters[1].aliases = {"head.weight"}; },
      "\"head.weight\", which occurs twice");
  CheckRefused(
      2, [](CheckpointManifest& m) { m.files[1].name = m.files[0].name; }, "files[1].name");
}

TEST_CASE("Manifest: names of files lead to no other folder", "[save]") {
  for (const std::string name : {"", ".", "..", "../rank", "/etc/passwd", "a/b", "manifest.json"}) {
    CheckRefused(
        1, [&](CheckpointManifest& m) { m.files[0].name = name; }, "files[0].name");
  }
  std::string text = FormatManifest(CutCheckpoint(1));
  CheckRefused(Replaced(text, "rank-00000", "rank\\u0000"), "files[0].name");
}

TEST_CASE("Manifest: there is a file for each rank and a checksum for each block", "[save]") {
  CheckRefused(
      2, [](CheckpointManifest& m) { m.world_size = 3; }, "has 2 files, but world_size is 3");
  CheckRefused(
      2, [](CheckpointManifest& m) { m.files[1].bytes = (1 << 20) + 1; },
      "files[1].crc32c has 8 digits; 1048577 bytes are 2 blocks");
  const std::string text = FormatManifest(CutCheckpoint(1));
  CheckRefused(Replaced(text, "\"00000000\"", "\"0000000G\""), "at digit 7");
  CheckRefused(Replaced(text, "\"00000000\"", "\"0000000\""), "has 7 digits");
}

TEST_CASE("Manifest: pieces cover every element once", "[save]") {
  const auto piece = [](CheckpointManifest& manifest, int file, int64_t parameter) {
    for (CheckpointPiece& p : manifest.files[file].pieces) {
      if (p.parameter == parameter) return &p;
    }
    return static_cast<CheckpointPiece*>(nullptr);
  };
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 0, 0)->count = 14; },
      "parameters[0] \"embed.weight\": element 14 is in no file");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 0, 0)->count = 16; }, "element 15 is in two files");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 1, 1)->count = 2; },
      "\"layer.bias\": element 6 is in no file");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 1, 1)->count = 4; },
      "goes past the end of \"layer.bias\", which has 7 elements");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 1, 1)->count = INT64_MAX; }, "goes past the end");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 1, 1)->count = 0; }, "from 1 on");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 1, 1)->parameter = 5; }, "from 0 to 4");
  CheckRefused(
      2, [&](CheckpointManifest& m) { piece(m, 1, 1)->parameter = 0; },
      "is a second piece of \"embed.weight\"");
}

TEST_CASE("Manifest: states are those that a parameter can have", "[save]") {
  CheckRefused(
      1, [](CheckpointManifest& m) { m.parameters[0].states.erase(kMasterState); },
      "parameters[0].states has no 'master'");
  CheckRefused(
      1, [](CheckpointManifest& m) { m.parameters[2].states = {}; },
      "parameters[2].states has no 'weight'");
  CheckRefused(
      1, [](CheckpointManifest& m) { m.parameters[0].states["weight"] = DType::kBF16; },
      "has \"weight\", which a trainable parameter has not");
  CheckRefused(
      1, [](CheckpointManifest& m) { m.parameters[2].states["moment1"] = DType::kF32; },
      "has \"moment1\", which a frozen parameter has not");
  CheckRefused(
      1, [](CheckpointManifest& m) { m.parameters[0].states[kMasterState] = DType::kF16; },
      "states.master is fp16");
  CheckRefused(
      1, [](CheckpointManifest& m) { m.parameters[0].states[kMoment2State] = DType::kBF16; },
      "states.moment2 is bf16");
  CheckpointManifest manifest = CutCheckpoint(1);
  manifest.parameters[0].states[kMasterState] = DType::kBF16;
  CHECK_OK(ParseManifest(FormatManifest(manifest)).status());
}

TEST_CASE("Manifest: errors of a folder name the path", "[save]") {
  const TemporaryFolder folder;
  const auto missing = ReadManifest(folder.path());
  CHECK(absl::IsNotFound(missing.status()));
  CHECK_THAT(std::string(missing.status().message()),
             ContainsSubstring(folder.path() + "/manifest.json"));
  WriteFile(folder.File("manifest.json"), "{\"format\": 1}");
  const auto wrong = ReadManifest(folder.path());
  CHECK(absl::IsDataLoss(wrong.status()));
  CHECK_THAT(std::string(wrong.status().message()),
             ContainsSubstring(folder.path() + "/manifest.json: "));
  const CheckpointManifest manifest = CutCheckpoint(2);
  WriteFile(folder.File("manifest.json"), FormatManifest(manifest));
  const auto read = ReadManifest(folder.path());
  REQUIRE_OK(read.status());
  CheckSame(*read, manifest);
}

TEST_CASE("ParseManifest: what only people write in JSON is refused", "[zero][checkpoint]") {
  const std::string text = FormatManifest(CutCheckpoint(2));
  REQUIRE_OK(ParseManifest(text).status());
  CheckRefused("// by hand\n" + text, "line 1 column 1");
}

}  // namespace
}  // namespace zero::test
