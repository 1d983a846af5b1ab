#include "tests/programs/training_text.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/programs/refusal.h"

namespace zero::programs {
namespace {

// Sentences with something to learn: words that follow each other in an order that varies.
std::string SmallText() {
  const std::vector<std::string> words = {"the ", "rank ",  "owns ",  "a ",  "slice ",
                                          "of ",  "every ", "unit, ", "and "};
  std::string text;
  uint32_t state = 1;
  while (text.size() < 6000) {
    state = state * 1664525u + 1013904223u;
    text += words[(state >> 16) % words.size()];
    if (state >> 28 == 0) text += "\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> WithFlags(const std::map<std::string, std::string>& others,
                                   const std::vector<std::string>& flags) {
  std::vector<std::string> all;
  for (const auto& [name, value] : others) {
    const std::string flag = "--" + name;
    const bool given = std::any_of(flags.begin(), flags.end(), [&](const std::string& text) {
      return text == flag || text.rfind(flag + "=", 0) == 0;
    });
    if (!given) all.insert(all.end(), {flag, value});
  }
  for (const std::string& flag : flags) {
    const bool left_out =
        flag.size() > 3 && flag.back() == '=' && others.count(flag.substr(2, flag.size() - 3)) > 0;
    if (!left_out) all.push_back(flag);
  }
  return all;
}

std::string SmallConfig(bool tied) {
  return std::string(R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 24,
 "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
 "num_key_value_heads": 1, "max_position_embeddings": 32, "tie_word_embeddings": )") +
         (tied ? "true" : "false") + "}\n";
}

TrainingFolder::TrainingFolder(bool tied) {
  WriteFile(model(), SmallConfig(tied));
  WriteFile(data(), SmallText());
}

std::vector<std::string> TrainingFolder::Names() const {
  std::vector<std::string> names = folder_.Names();
  std::sort(names.begin(), names.end());
  return names;
}

Outcome TrainingFolder::Train(const std::vector<std::string>& flags,
                              const std::string& program) const {
  const std::map<std::string, std::string> usual = {
      {"model", model()}, {"data", data()}, {"sequence_length", "16"}, {"steps", "4"},
      {"threads", "2"},   {"clip", "1"},    {"learning_rate", "1e-2"}, {"seed", "5"}};
  return RunProgram(program, WithFlags(usual, flags));
}

void TrainingFolder::CheckRefused(const std::vector<std::string>& flags, int status,
                                  const std::vector<std::string>& words) const {
  CAPTURE(flags);
  const auto before = Names();
  const Outcome outcome =
      Train(WithFlags({{"output", File("made/here")}, {"metrics", File("made.jsonl")}}, flags));
  CheckFailed(outcome, status, words);
  CHECK_THAT(outcome.err, Catch::Matchers::StartsWith("zero-train: "));
  CHECK(Names() == before);
}

std::string TrainingFolder::Metrics(const std::vector<std::string>& flags,
                                    const std::string& program) const {
  std::vector<std::string> all = flags;
  const std::string metrics = File("metrics.jsonl");
  all.insert(all.end(), {"--metrics", metrics});
  const Outcome outcome = Train(all, program);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  const std::string text = outcome.status == 0 ? ReadFile(metrics) : "";
  std::filesystem::remove(metrics);
  return text;
}

}  // namespace zero::programs
