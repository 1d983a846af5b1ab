#include "io/weight_index.h"

#include "tests/catch.h"

namespace zero {
namespace {

using Map = std::map<std::string, std::string>;

TEST_CASE("WeightIndex: tensors and total_size are read and everything else is skipped") {
  const auto index = ParseWeightIndex(
      "{\"metadata\": {\"total_size\": 20, \"format\": [1]}, \"more\": {\"x\": 1},\n"
      "\"weight_map\": {\"b\": \"2.safetensors\", \"a\\u00e9\": \"1.safetensors\"}}");
  REQUIRE_OK(index.status());
  CHECK(index->file_of == Map{{"b", "2.safetensors"}, {"a\xC3\xA9", "1.safetensors"}});
  CHECK(index->total_size == 20);
  for (const char* metadata : {"", "\"metadata\": null, ", "\"metadata\": {}, "}) {
    const auto bare = ParseWeightIndex(std::string("{") + metadata + "\"weight_map\": {}}");
    REQUIRE_OK(bare.status());
    CHECK(!bare->total_size.has_value());
  }
  // As some programs write it.
  CHECK(
      ParseWeightIndex("{\"metadata\": {\"total_size\": 2.0e1}, \"weight_map\": {}}")->total_size ==
      20);
}

TEST_CASE("WeightIndex: file names that are paths are refused with tensor and place") {
  for (const char* file :
       {"../ok/f", "/etc/passwd", "a/b", "..", ".", "", "f\\u0000x", "f/", "\\u002e\\u002e"}) {
    CAPTURE(file);
    const absl::Status status =
        ParseWeightIndex(std::string("{\"weight_map\": {\n \"w\": \"") + file + "\"}}").status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("line 2 column 7: tensor \"w\" is in \"") &&
                   ContainsSubstring("the name of a file in the same folder"));
  }
  CHECK_OK(ParseWeightIndex("{\"weight_map\": {\"w\": \"..f\", \"v\": \"a\\\\b\"}}").status());
}

TEST_CASE("WeightIndex: what is no index is refused with line and column") {
  const auto refused = [](const std::string& text, const std::string& words) {
    CAPTURE(text);
    const absl::Status status = ParseWeightIndex(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), ContainsSubstring(words));
  };
  refused("", "line 1 column 1: there is no value");
  refused("{\n  \"weight_map\": ", "line 2 column 17: expected a value, not the end of the text");
  refused("{\"weight_map\": {\"a\": \"f\"}} x", "line 1 column 28: something follows");
  refused("{\"weight_map\": {\"a\": \"f\",}}", "line 1 column 25: a comma before the end");
  refused("{\"weight_map\": {\"a\": \"f\",\n\"a\": \"f\"}}",
          "line 2 column 1: key \"a\" occurs twice; first at line 1 column 17");
  refused("{\"weight_map\": {}, \"weight_map\": {}}", "key \"weight_map\" occurs twice");
  refused("{\"weight_map\": {\"a\": 1}}", "line 1 column 22: tensor \"a\" is in 1;");
  refused("{\"weight_map\": {\"a\": null}}", "tensor \"a\" is in null;");
  refused("{\"weight_map\": []}", "line 1 column 16: there must be an object \"weight_map\"");
  refused("\n{}", "line 2 column 1: there must be an object \"weight_map\"");
  refused("[]", "line 1 column 1: there must be an object \"weight_map\"");
  refused("{\"metadata\": 1, \"weight_map\": {}}", "\"metadata\" must be an object");
  for (const char* total : {"-1", "1.5", "\"20\"", "1e30", "null"}) {
    refused(
        std::string("{\"metadata\": {\"total_size\": ") + total + "}, \"weight_map\": {}}",
        std::string("line 1 column 29: \"total_size\" must be a number of bytes, not ") + total);
  }
  refused("<!DOCTYPE html>", "not JSON: it is an HTML or XML page");
  refused("version https://git-lfs.github.com/spec/v1\n", "not JSON: it is a git-lfs pointer");
  refused(
      "{\"weight_map\": {\"" + std::string(1000, 'n') + "\": \"" + std::string(1000, '/') + "\"}}",
      "is in \"////");
}

TEST_CASE("WeightIndex: what is formatted reads back and is laid out as others lay it out") {
  WeightIndex index;
  index.file_of = {{"b", "model-00002-of-00002.safetensors"},
                   {"a\"\n", "model-00001-of-00002.safetensors"}};
  index.total_size = int64_t{1} << 40;
  const std::string text = FormatWeightIndex(index);
  CHECK(text ==
        "{\n  \"metadata\": {\n    \"total_size\": 1099511627776\n  },\n  \"weight_map\": {\n"
        "    \"a\\\"\\n\": \"model-00001-of-00002.safetensors\",\n"
        "    \"b\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
  const auto read = ParseWeightIndex(text);
  REQUIRE_OK(read.status());
  CHECK(read->file_of == index.file_of);
  CHECK(read->total_size == index.total_size);
  CHECK_OK(ParseWeightIndex(FormatWeightIndex(WeightIndex{})).status());
}

TEST_CASE("WeightIndex: an index of 100000 tensors is read") {
  WeightIndex index;
  for (int i = 0; i < 100'000; ++i) {
    index.file_of["model.layers." + std::to_string(i) + ".weight"] = "model.safetensors";
  }
  const auto read = ParseWeightIndex(FormatWeightIndex(index));
  REQUIRE_OK(read.status());
  CHECK((read->file_of == index.file_of));
}

TEST_CASE("WeightIndex: names of weights are told from those of other files") {
  CHECK(WeightShardName(3, 12) == "model-00003-of-00012.safetensors");
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
        "model-100000-of-123456.safetensors"}) {
    CAPTURE(name);
    CHECK(IsWeightFileName(name));
  }
  for (const char* name :
       {"model-00001-of-00002.bin", "model-0001-of-00002.safetensors", "model-00001.safetensors",
        "model--of-00002.safetensors", "config.json", "xmodel-00001-of-00002.safetensors",
        "adapter_model.safetensors", "model-00001-of-00002.safetensors.x", ""}) {
    CAPTURE(name);
    CHECK(!IsWeightFileName(name));
  }
}

}  // namespace
}  // namespace zero
