// ParseWeightIndex, on any text.
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "io/weight_index.h"
#include "tests/fuzz/fuzz_target.h"

namespace zero {
namespace {

// Whether another reader takes it for JSON too; numbers past a double's range, which it does not
// take, have no say.
bool IsJson(const std::string& text) {
  try {
    return !nlohmann::json::parse(text).is_discarded();
  } catch (const nlohmann::json::out_of_range&) {
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void CheckIndex(const WeightIndex& index, const std::string& text) {
  FuzzCheck(IsJson(text), "another reader takes it for JSON too");
  for (const auto& [tensor, file] : index.file_of) {
    FuzzCheck(!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
                  file.find('\0') == std::string::npos,
              "every file is a name in the folder");
  }
  FuzzCheck(index.total_size.value_or(0) >= 0, "total_size is not negative");
  const auto again = ParseWeightIndex(FormatWeightIndex(index));
  FuzzCheck(again.ok(), "what is written can be read");
  FuzzCheck(again->file_of == index.file_of && again->total_size == index.total_size,
            "it comes back as it was");
}

}  // namespace
}  // namespace zero

std::vector<std::string> FuzzSeeds() {
  return {
      "{\"weight_map\": {}}",
      "{\"metadata\": {\"total_size\": 20}, \"weight_map\": {\"a\": \"model.safetensors\"}}\n",
      "{\n  \"metadata\": {\"total_size\": 2.0e1, \"more\": [null, true]},\n"
      "  \"weight_map\": {\n    \"lm_head.weight\": \"model-00001-of-00002.safetensors\",\n"
      "    \"model.norm.weight\": \"model-00002-of-00002.safetensors\"\n  }\n}\n",
      "\xEF\xBB\xBF{\"weight_map\":{\"\\u00e9\\ud83d\\ude00\":\"a\\tb\"},\"x\":[-1.5E-3,{}]}",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto index = zero::ParseWeightIndex(text);
  if (index.ok()) {
    ++fuzz_counts.accepted;
    zero::CheckIndex(*index, text);
    return 0;
  }
  ++fuzz_counts.refused;
  FuzzCheck(absl::IsInvalidArgument(index.status()), "a refusal is kInvalidArgument");
  const std::string message(index.status().message());
  FuzzCheck(message.find("line ") == 0, "a refusal names the line");
  FuzzCheck(message.size() < 2000, "a refusal is short");
  return 0;
}
