#include "io/weight_index.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "device/status.h"
#include "io/file_kind.h"
#include "io/relaxed_json.h"

namespace zero {
namespace {

absl::Status Wrong(const TextPlace& place, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(place), ": ", what));
}

// A name, not a path; a NUL would cut it for the system.
bool IsFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\0", 2)) == std::string::npos;
}

absl::StatusOr<std::optional<int64_t>> TotalSize(const JsonValue& root) {
  const JsonMember* metadata = root.Find("metadata");
  if (metadata == nullptr || metadata->value.kind == JsonValue::Kind::kNull) return std::nullopt;
  if (metadata->value.kind != JsonValue::Kind::kObject) {
    return Wrong(metadata->value.place, "\"metadata\" must be an object");
  }
  const JsonMember* total = metadata->value.Find("total_size");
  if (total == nullptr) return std::nullopt;
  const bool is_number = total->value.kind == JsonValue::Kind::kNumber;
  const absl::StatusOr<int64_t> bytes = ExactInteger(is_number ? total->value.text : "x");
  if (is_number && bytes.ok() && *bytes >= 0) return *bytes;
  return Wrong(total->value.place, absl::StrCat("\"total_size\" must be a number of bytes, not ",
                                                ToText(total->value).substr(0, 80)));
}

bool IsShardName(absl::string_view name) {
  const auto digits = [&] {
    size_t count = 0;
    while (count < name.size() && absl::ascii_isdigit(static_cast<unsigned char>(name[count]))) {
      ++count;
    }
    name.remove_prefix(count);
    return count >= 5;
  };
  const auto takes = [&](absl::string_view text) {
    if (!absl::StartsWith(name, text)) return false;
    name.remove_prefix(text.size());
    return true;
  };
  return takes("model-") && digits() && takes("-of-") && digits() && name == ".safetensors";
}

}  // namespace

absl::StatusOr<WeightIndex> ParseWeightIndex(const std::string& text) {
  std::vector<JsonProblem> problems;
  const std::optional<JsonValue> root = ReadStrictJson(text, problems);
  if (!root.has_value()) {
    const std::string kind = OtherKindOfFile(text.substr(0, 64));
    const bool is_other = !kind.empty() && !absl::StrContains(kind, "JSON");
    return Wrong(problems.front().place,
                 absl::StrCat(is_other ? "not JSON: " + kind + "; " : "", problems.front().text));
  }
  const bool is_object = root->kind == JsonValue::Kind::kObject;
  const JsonMember* map = is_object ? root->Find("weight_map") : nullptr;
  if (map == nullptr || map->value.kind != JsonValue::Kind::kObject) {
    return Wrong(map == nullptr ? root->place : map->value.place,
                 "there must be an object \"weight_map\" of tensor names and the files that hold "
                 "them");
  }
  WeightIndex index;
  for (const JsonMember& tensor : map->value.members) {
    if (tensor.value.kind != JsonValue::Kind::kString || !IsFileName(tensor.value.text)) {
      return Wrong(tensor.value.place,
                   absl::StrCat("tensor ", Quoted(tensor.key.substr(0, 120)), " is in ",
                                ToText(tensor.value).substr(0, 120),
                                "; it must be the name of a file in the same folder"));
    }
    index.file_of[tensor.key] = tensor.value.text;
  }
  ZERO_ASSIGN_OR_RETURN(index.total_size, TotalSize(*root));
  return index;
}

std::string FormatWeightIndex(const WeightIndex& index) {
  std::vector<std::string> lines;
  for (const auto& [tensor, file] : index.file_of) {
    lines.push_back(absl::StrCat("    ", Quoted(tensor), ": ", Quoted(file)));
  }
  std::string text = "{\n";
  if (index.total_size.has_value()) {
    absl::StrAppend(&text, "  \"metadata\": {\n    \"total_size\": ", *index.total_size,
                    "\n  },\n");
  }
  absl::StrAppend(&text, "  \"weight_map\": {", lines.empty() ? "" : "\n",
                  absl::StrJoin(lines, ",\n"), lines.empty() ? "}\n}\n" : "\n  }\n}\n");
  return text;
}

std::string WeightShardName(int64_t number, int64_t count) {
  return absl::StrFormat("model-%05d-of-%05d.safetensors", number, count);
}

bool IsWeightFileName(const std::string& name) {
  return name == kWeightFileName || name == kWeightIndexName || IsShardName(name);
}

}  // namespace zero
