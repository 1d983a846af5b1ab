#include "zero/deepspeed_meant.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "zero/deepspeed_keys.h"
#include "zero/nearest_name.h"

namespace zero {
namespace {

constexpr size_t kShortest = 4;      // a name of fewer letters begins many others by chance
constexpr size_t kShortestWord = 3;  // likewise

bool Misspells(const std::string& key, const std::string& name) {
  return EditDistance(key, name) <= (name.size() < 6 ? 1 : 2);
}

bool Extends(const std::string& longer, const std::string& shorter) {
  return shorter.size() >= kShortest && absl::StartsWith(longer, shorter);
}

std::vector<std::string> WordsOf(const std::string& name) {
  return absl::StrSplit(name, absl::ByAnyChar("_- "), absl::SkipEmpty());
}

bool Shortens(const std::string& word, const std::string& whole) {
  return word == whole || (word.size() >= kShortestWord && absl::StartsWith(whole, word));
}

// Whether `name` has all of them, in any order.
bool HasWords(const std::string& name, const std::vector<std::string>& words) {
  const std::vector<std::string> all = WordsOf(name);
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& whole) { return Shortens(word, whole); });
  });
}

// What others call a key. Null: nothing.
const char* OtherName(const std::string& key) {
  constexpr struct {
    const char* name;
    const char* path;
  } kNames[] = {{"learning_rate", "optimizer.params.lr"},
                {"epsilon", "optimizer.params.eps"},
                {"beta1", "optimizer.params.betas"},
                {"beta2", "optimizer.params.betas"},
                {"communication_dtype", "communication_data_type"},
                {"dtype", "bf16.enabled"},
                {"precision", "bf16.enabled"}};
  for (const auto& other : kNames) {
    if (key == other.name) return other.path;
  }
  return nullptr;
}

bool ChangesResults(const DeepSpeedKey& key) {
  return key.fate == KeyFate::kHonoured || key.fate == KeyFate::kRefused;
}

}  // namespace

std::string MeantKey(const std::string& section, const std::string& key, const JsonValue& value) {
  const bool object = value.kind == JsonValue::Kind::kObject;
  if (OtherName(key) != nullptr && !object) return OtherName(key);
  const std::vector<std::string> words = WordsOf(key);
  std::string meant;
  int best = 4;  // how far-fetched
  for (const DeepSpeedKey& known : DeepSpeedKeys()) {
    if (!ChangesResults(known) || (known.kind == KeyKind::kSection) != object) continue;
    const bool here = SectionOf(known.path) == section;
    const std::string name = LastName(known.path);
    int rank = 4;
    if (here && Misspells(key, name)) {
      rank = 0;
    } else if (here && (Extends(name, key) || Extends(key, name + "_"))) {
      rank = 1;
    } else if (words.size() > 1 && HasWords(name, words)) {
      rank = here ? 2 : 3;
    } else if (here && words.size() == 1 && key.size() >= kShortest &&
               Shortens(key, WordsOf(name).back())) {
      rank = 2;
    }
    if (rank >= best) continue;
    best = rank;
    meant = known.path;
  }
  return meant;
}

}  // namespace zero
