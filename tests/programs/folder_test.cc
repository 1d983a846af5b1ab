// zero-train --model FOLDER, where the folder holds weights.
#include <cstring>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "examples/train/load.h"
#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/refusal.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

struct Content {
  SafetensorsTensor tensor;
  std::string bytes;
};
using Contents = std::map<std::string, Content>;

Contents ReadContents(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  REQUIRE(file.ok());
  Contents contents;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
    REQUIRE(file->ReadBytes(tensor.name, 0, absl::MakeSpan(bytes.data(), bytes.size())).ok());
    contents[tensor.name] = {tensor, bytes};
  }
  return contents;
}

void WriteContents(const std::string& path, const Contents& contents) {
  std::vector<SafetensorsTensor> tensors;
  std::string bytes;
  for (const auto& [name, content] : contents) {
    tensors.push_back(content.tensor);
    tensors.back().name = name;
    bytes += content.bytes;
  }
  auto writer = SafetensorsWriter::Create(path, tensors);
  REQUIRE(writer.ok());
  REQUIRE((*writer)->Append(bytes).ok());
  REQUIRE((*writer)->Finish().ok());
}

Content Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  Content content;
  content.tensor.dtype = "F32";
  content.tensor.shape = std::move(shape);
  content.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return content;
}

// A model that zero-train made, in the folder "saved" beside the training text.
class SavedFolder {
 public:
  explicit SavedFolder(const std::string& dtype = "fp32", bool tied = false) : training_(tied) {
    const Outcome outcome = training_.Train({"--output", path(), "--dtype", dtype});
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
  }

  std::string path() const { return training_.File("saved"); }
  std::string File(const std::string& name) const { return path() + "/" + name; }
  const TrainingFolder& training() const { return training_; }

  Contents contents() const { return ReadContents(File("model.safetensors")); }
  // The same tensors after `change`.
  void Change(const std::function<void(Contents&)>& change) const {
    Contents all = contents();
    change(all);
    WriteContents(File("model.safetensors"), all);
  }
  // Tensors in two files and an index; every third one is in the second file.
  void Shard() const {
    Contents parts[2];
    std::string map;
    int count = 0;
    for (const auto& [name, content] : contents()) {
      const int part = count++ % 3 == 2 ? 1 : 0;
      parts[part][name] = content;
      absl::StrAppend(&map, map.empty() ? "" : ",\n", "\"", name, "\": \"", PartName(part), "\"");
    }
    for (const int part : {0, 1}) WriteContents(File(PartName(part)), parts[part]);
    WriteFile(index(), absl::StrCat("{\"metadata\": {}, \"weight_map\": {", map, "}}"));
    std::filesystem::remove(File("model.safetensors"));
  }
  static std::string PartName(int part) {
    return absl::StrCat("model-0000", part + 1, "-of-00002.safetensors");
  }
  std::string index() const { return File("model.safetensors.index.json"); }

  // zero-train from this folder, unless the flags say another.
  Outcome Train(const std::vector<std::string>& flags) const {
    return training_.Train(With(flags));
  }
  std::string Metrics(const std::vector<std::string>& flags) const {
    return training_.Metrics(With(flags));
  }

  void CheckRefused(const std::vector<std::string>& words) const {
    programs::CheckRefused(Train({}), 1, words);
  }

 private:
  std::vector<std::string> With(const std::vector<std::string>& flags) const {
    return WithFlags({{"model", path()}}, flags);
  }

  TrainingFolder training_;
};

TEST_CASE("zero-train --model: starts from the weights of the folder in every stage",
          "[programs]") {
  const std::string dtype = GENERATE("fp32", "bf16", "fp16");
  const bool tied = GENERATE(false, true);
  CAPTURE(dtype, tied);
  const SavedFolder saved(dtype, tied);
  const std::string expected = ReadFile(saved.File("model.safetensors"));
  for (const auto& [stage, ranks] : {std::pair("0", "1"), {"1", "2"}, {"2", "3"}, {"3", "4"}}) {
    CAPTURE(stage, ranks);
    const std::string again = saved.training().File("again");
    const Outcome outcome =
        saved.Train({"--dtype", dtype, "--stage", stage, "--ranks", ranks, "--learning_rate=0",
                     "--steps=1", "--loss_scale=64", "--output", again});
    CHECK(outcome.err.empty());
    CHECK_THAT(outcome.out, ContainsSubstring("weights     " + saved.File("model.safetensors") +
                                              ": " + (tied ? "20" : "21") + " tensors of " +
                                              (dtype == "fp32"   ? "F32"
                                               : dtype == "bf16" ? "BF16"
                                                                 : "F16")));
    CHECK(outcome.out.find("ignored") == std::string::npos);
    CHECK(ReadFile(again + "/model.safetensors") == expected);
  }
}

TEST_CASE("zero-train --model: fp32 tensors become bf16 weights and exact masters", "[programs]") {
  const SavedFolder saved;
  const std::string again = saved.training().File("again");
  CHECK(saved.Train({"--dtype=bf16", "--learning_rate=0", "--steps=1", "--output", again}).status ==
        0);
  const Contents rounded = ReadContents(again + "/model.safetensors");
  for (const auto& [name, content] : saved.contents()) {
    const std::string& bits = rounded.at(name).bytes;
    for (size_t i = 0; 2 * i < bits.size(); ++i) {
      uint32_t wide = 0;
      uint16_t narrow = 0;
      std::memcpy(&wide, content.bytes.data() + 4 * i, 4);
      std::memcpy(&narrow, bits.data() + 2 * i, 2);
      const uint32_t nearest = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;  // ties to even
      if (narrow != nearest) FAIL_CHECK(name << " element " << i);
    }
  }
}

TEST_CASE("zero-train --model: weights in several files train like those in one", "[programs]") {
  const SavedFolder saved;
  const std::string one = saved.Metrics({"--ranks=2", "--dtype=fp32"});
  CHECK(LinesOf(one) == 4);
  CHECK(WithoutTimes(saved.training().Metrics({"--ranks=2", "--dtype=fp32"})) != WithoutTimes(one));
  saved.Shard();
  CHECK(WithoutTimes(saved.Metrics({"--ranks=2", "--dtype=fp32"})) == WithoutTimes(one));
  const Outcome sample = RunProgram("zero-sample", {"--model", saved.path(), "--tokens=3"});
  CHECK(sample.status == 0);
  // --model names the file: random weights.
  const Outcome random = saved.Train({"--model", saved.File("config.json"), "--seed=7"});
  CHECK_THAT(random.out, ContainsSubstring("weights     random, of --seed 7\n"));
}

TEST_CASE("zero-train --model: buffers of rotary embeddings are ignored with one line",
          "[programs]") {
  const SavedFolder saved;
  saved.Change([](Contents& all) {
    for (const char* layer : {"0", "1"}) {
      all[absl::StrCat("model.layers.", layer, ".self_attn.rotary_emb.inv_freq")] =
          Floats({4}, {1, 0.1f, 0.01f, 0.001f});
    }
  });
  const Outcome outcome = saved.Train({});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out,
             ContainsSubstring("\nignored     2 buffers of rotary embeddings, which config.json "
                               "gives: 'model.layers.0.self_attn.rotary_emb.inv_freq', ...\n"));
}

TEST_CASE("zero-train --model: every tensor that does not fit is listed", "[programs]") {
  const SavedFolder saved;
  saved.Change([](Contents& all) {
    all.erase("model.layers.0.mlp.up_proj.weight");
    all.erase("model.norm.weight");
    all["model.layers.1.self_attn.k_proj.weight"].tensor.shape = {24, 8};
    all["model.layers.1.input_layernorm.weight"].tensor.dtype = "I32";
    all["model.layers.1.mlp.down_proj.SCB"] = Floats({2}, {1, 2});
  });
  saved.CheckRefused(
      {"--model: ", saved.File("model.safetensors"),
       "tensor 'model.layers.0.mlp.up_proj.weight' of shape [40, 24] is missing",
       "tensor 'model.norm.weight' of shape [24] is missing",
       "tensor 'model.layers.1.self_attn.k_proj.weight' has shape [24, 8]", "makes it [8, 24]",
       "num_key_value_heads", "tensor 'model.layers.1.input_layernorm.weight' is I32",
       "tensor 'model.layers.1.mlp.down_proj.SCB' of shape [2] is none of the model"});
  WriteContents(saved.File("model.safetensors"), {{"x", Floats({1}, {1})}});
  saved.CheckRefused(
      {"tensor 'model.embed_tokens.weight' of shape [256, 24] is missing", "; and 12 more"});
}

TEST_CASE("zero-train --model: a value that is not finite is named", "[programs]") {
  const SavedFolder saved;
  const auto set = [&](float value, const char* dtype = "bf16") {
    saved.Change([&](Contents& all) {
      std::memcpy(all["model.layers.1.mlp.down_proj.weight"].bytes.data() + 4 * 700, &value, 4);
    });
    // Gradients of the largest values may overflow.
    return saved.Train({"--ranks=2", "--dtype", dtype, "--max_skips=0"});
  };
  const char* where = "tensor 'model.layers.1.mlp.down_proj.weight': element 700 is ";
  for (const auto& [value, word] :
       {std::pair(std::numeric_limits<float>::quiet_NaN(), "nan"),
        {-std::numeric_limits<float>::infinity(), "-inf"},
        {std::numeric_limits<float>::max(), "3.40282e+38, too large for bf16"}}) {
    const Outcome outcome = set(value);
    CHECK(outcome.status == 1);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(std::string(where) + word));
  }
  CHECK(set(3.3e38f).status == 0);
  CHECK_THAT(set(65520, "fp16").err,
             ContainsSubstring(std::string(where) + "65520, too large for fp16"));
  CHECK(set(65519, "fp16").status == 0);
}

TEST_CASE("zero-train --model: an index that is not that of its files is refused", "[programs]") {
  const SavedFolder saved;
  saved.Shard();
  const std::string index = ReadFile(saved.index());
  const std::string first = SavedFolder::PartName(0), second = SavedFolder::PartName(1);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = index;
    const size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    WriteFile(saved.index(), changed.replace(at, from.size(), to));
  };
  CHECK(saved.Train({}).status == 0);
  with("\"model.norm.weight\"", "\"model.other.weight\"");
  saved.CheckRefused({saved.index(), "tensor 'model.other.weight' is not in model-0000"});
  with(first, second);
  saved.CheckRefused({saved.index(), "is in " + first + ", the index says in " + second});
  with(first, "absent.safetensors");
  saved.CheckRefused({saved.index(), "absent.safetensors is missing, which should hold 1 tensor"});
  with("\"" + first, "\"../saved/" + first);
  saved.CheckRefused({saved.index(), "../saved/", "name of a file in the same folder"});
  with("\"weight_map\"", "\"weights\"");
  saved.CheckRefused({saved.index(), "\"weight_map\""});
  WriteFile(saved.index(), "{\"weight_map\": ");
  saved.CheckRefused({saved.index(), "line 1 column 16: expected a value"});
}

TEST_CASE("zero-train --model: where there are a file and an index the file is used and it says so",
          "[programs]") {
  const SavedFolder saved;
  const Contents contents = saved.contents();
  const std::string expected = saved.Metrics({});
  saved.Shard();
  // The shards hold something else.
  for (const int part : {0, 1}) WriteFile(saved.File(SavedFolder::PartName(part)), "else");
  WriteContents(saved.File("model.safetensors"), contents);
  const Outcome outcome = saved.Train({});
  CHECK_THAT(outcome.out, ContainsSubstring("note        model.safetensors.index.json and what it "
                                            "names are passed over: model.safetensors is there"));
  CHECK(WithoutTimes(saved.Metrics({})) == WithoutTimes(expected));
}

TEST_CASE("zero-train --model: weights of another kind are not passed over", "[programs]") {
  const SavedFolder saved;
  const auto rename = [&](const std::string& from, const std::string& to) {
    std::filesystem::rename(saved.File(from), saved.File(to));
    return to;
  };
  std::string name = "model.safetensors";
  for (const char* other : {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.gguf",
                            "consolidated.safetensors"}) {
    name = rename(name, other);
    saved.CheckRefused({saved.path(), "holds '" + name + "'", "model.safetensors.index.json"});
  }
  rename(name, "notes.txt");
  const Outcome outcome = saved.Train({});
  CHECK_THAT(outcome.out, ContainsSubstring("weights     random"));
}

TEST_CASE("zero-train: the weights that a run starts from are not written over", "[programs]") {
  const SavedFolder saved;
  saved.Shard();
  for (const std::string& name :
       {SavedFolder::PartName(1), std::string("model.safetensors.index.json")}) {
    const std::string before = ReadFile(saved.File(name));
    const Outcome outcome = saved.Train({"--metrics", saved.File(name)});
    CHECK(outcome.status == 2);
    CHECK_THAT(outcome.err, ContainsSubstring("--metrics would write over '" + saved.File(name)));
    CHECK(ReadFile(saved.File(name)) == before);
  }
  CHECK(saved.Train({"--output", saved.path()}).status == 2);
}

}  // namespace
}  // namespace zero::programs
