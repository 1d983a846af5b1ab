#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/programs/refusal.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

Outcome Sample(const std::string& folder, const std::vector<std::string>& flags = {}) {
  return RunProgram("zero-sample",
                    WithFlags({{"model", folder}, {"tokens", "40"}, {"prompt", "the ra"}}, flags));
}

void TrainTo(const TrainingFolder& folder, const std::string& output,
             const std::vector<std::string>& flags) {
  std::vector<std::string> all = {"--output", output};
  all.insert(all.end(), flags.begin(), flags.end());
  const Outcome outcome = folder.Train(all);
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.status == 0);
}

TEST_CASE("zero-sample: continues a prompt from what zero-train saved", "[programs]") {
  const bool tied = GENERATE(false, true);
  const std::string dtype = GENERATE("fp32", "bf16", "fp16");
  CAPTURE(tied, dtype);
  const TrainingFolder folder(tied);
  const std::string saved = folder.File("deep/saved");
  TrainTo(folder, saved, {"--ranks=3", "--dtype", dtype});
  const Outcome outcome = Sample(saved);
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  CHECK(outcome.out.substr(0, 6) == "the ra");
  CHECK(outcome.out.size() == 6 + 40 + 1);
  CHECK(Sample(saved).out == outcome.out);
  CHECK(Sample(saved, {"--threads=1"}).out == outcome.out);
  CHECK(Sample(saved, {"--seed=1"}).out != outcome.out);
}

TEST_CASE("zero-sample: the likeliest bytes are those of the text that the model learnt",
          "[programs]") {
  const TrainingFolder folder(GENERATE(false, true));
  std::string text;
  while (text.size() < 4000) text += "shards of every unit. ";
  WriteFile(folder.data(), text);
  const std::string saved = folder.File("saved");
  TrainTo(folder, saved,
          {"--ranks=2", "--micro_batch=4", "--steps=120", "--sequence_length=32",
           "--warmup_steps=10", "--schedule=cosine"});
  // Longer than what the model sees at once.
  const Outcome outcome = Sample(saved, {"--prompt", "shards of e", "--temperature=0"});
  CHECK(outcome.out.substr(0, 51) == text.substr(0, 51));
}

TEST_CASE("zero-train --output: the file is the same for every stage", "[programs]") {
  const TrainingFolder folder(GENERATE(false, true));
  TrainTo(folder, folder.File("0"), {"--ranks=2", "--stage=0"});
  const std::string first = ReadFile(folder.File("0/model.safetensors"));
  CHECK(first.size() > 1000);
  for (const std::string stage : {"1", "2", "3"}) {
    TrainTo(folder, folder.File(stage), {"--ranks=2", "--stage", stage});
    CHECK(ReadFile(folder.File(stage + "/model.safetensors")) == first);
    CHECK(ReadFile(folder.File(stage + "/config.json")) == ReadFile(folder.File("0/config.json")));
  }
}

TEST_CASE("zero-train --output: Hugging Face names, a tied head once, nothing else", "[programs]") {
  const bool tied = GENERATE(false, true);
  const TrainingFolder folder(tied);
  const std::string saved = folder.File("saved");
  TrainTo(folder, saved, {"--ranks=2", "--dtype=bf16", "--steps=1"});
  const auto file = SafetensorsFile::Open(saved + "/model.safetensors");
  REQUIRE(file.ok());
  CHECK(file->metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file->tensors().size() == (tied ? 20 : 21));
  CHECK(file->Find("lm_head.weight").ok() == !tied);
  const auto query = file->Find("model.layers.1.self_attn.q_proj.weight");
  REQUIRE(query.ok());
  CHECK((*query)->dtype == "BF16");
  CHECK((*query)->shape == std::vector<int64_t>{24, 24});
  CHECK_THAT(ReadFile(saved + "/config.json"), ContainsSubstring("bfloat16"));
  int names = 0;
  for (const auto& entry : std::filesystem::directory_iterator(saved)) names += entry.exists();
  CHECK(names == 2);
}

TEST_CASE("zero-sample: a folder that does not fit is refused with what would be right",
          "[programs]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  CheckRefused(Sample(saved), 1, {"--model", saved, "is no folder"});
  std::filesystem::create_directory(saved);
  CheckRefused(Sample(saved), 1, {saved, "config.json"});
  WriteFile(saved + "/config.json", SmallConfig(false));
  CheckRefused(Sample(saved), 1, {saved + "/model.safetensors"});
  TrainTo(folder, saved, {"--steps=1"});

  const std::string config = ReadFile(saved + "/config.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    const size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    WriteFile(saved + "/config.json", changed.replace(at, from.size(), to));
    return Sample(saved);
  };
  CheckRefused(with("\"intermediate_size\": 40", "\"intermediate_size\": 48"), 1,
               {"gate_proj", "[40, 24]", "[48, 24]", "intermediate_size"});
  CheckRefused(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"), 1,
               {"model.layers.2.", "is missing"});
  CheckRefused(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"), 1,
               {"model.layers.1.", "none of the model"});
  CheckRefused(with("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"), 1,
               {"lm_head.weight", "model.embed_tokens.weight", "tie_word_embeddings"});
  CheckRefused(with("\"hidden_size\": 24", "\"hidden_size\": -1"), 1, {"hidden_size"});
  WriteFile(saved + "/config.json", config);

  const std::string weights = ReadFile(saved + "/model.safetensors");
  WriteFile(saved + "/model.safetensors", weights.substr(0, weights.size() - 1));
  CheckRefused(Sample(saved), 1, {"model.safetensors"});
}

TEST_CASE("zero-sample: wrong flags are refused", "[programs]") {
  CheckRefused(RunProgram("zero-sample", {}), 2, {"--model is missing"});
  CheckRefused(Sample("x", {"--prompt", ""}), 2, {"--prompt"});
  CheckRefused(Sample("x", {"--tokens=0"}), 2, {"--tokens is '0'"});
  CheckRefused(Sample("x", {"--temperature=-1"}), 2, {"--temperature is '-1'"});
  CheckRefused(Sample("x", {"--promt=a"}), 2, {"--promt", "--prompt"});
}

}  // namespace
}  // namespace zero::programs
