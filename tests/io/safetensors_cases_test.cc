// Folders of case files from elsewhere, where they are there.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "io/safetensors.h"
#include "io/weight_folder.h"
#include "tests/catch.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

// What the variable names, or the folder beside the repository; empty if there is none.
std::string CasesFolder(const char* variable, const char* beside) {
  const char* named = std::getenv(variable);
  const std::string folder =
      named != nullptr ? named : std::string(ZERO_SOURCE_DIR "/../") + beside;
  INFO(variable << " is '" << folder << "'; it must be a folder");
  if (named != nullptr) REQUIRE(fs::is_directory(folder));
  if (fs::is_directory(folder)) return folder;
  WARN(variable << " is not given: no case files tried");
  return "";
}

std::vector<fs::path> Sorted(const std::string& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Whether a file must load; nothing where it only must not crash.
std::optional<bool> MustLoad(const std::string& name) {
  static const auto* others = new std::map<std::string, bool>{
      {"extra_field", true},    {"metadata_null", true}, {"dup_name_same", false},
      {"dup_name_diff", false}, {"dup_field", false},    {"nul_padding", false}};
  if (absl::StartsWith(name, "ok_")) return true;
  if (absl::StartsWith(name, "bad_")) return false;
  const auto found = others->find(name);
  return found == others->end() ? std::nullopt : std::make_optional(found->second);
}

// What the error of a file must hold besides its path.
std::string WordsFor(const std::string& name) {
  static const auto* words = new std::map<std::string, std::string>{
      {"bad_array_root", "does not begin with '{'"},
      {"bad_deep_object", "nests more than 128 levels"},
      {"bad_dtype_lower", "unknown dtype 'f32'"},
      {"bad_dtype_unknown", "unknown dtype 'F12'"},
      {"bad_end_before_begin", "data_offsets [4, 0] end too early"},
      {"bad_first_not_zero", "leave a gap"},
      {"bad_header_len_past_end", "but the file has 88 in all"},
      {"bad_header_len_zero", "the header of 0 bytes"},
      {"bad_html", "HTML"},
      {"bad_lfs_pointer", "git-lfs pointer"},
      {"bad_metadata_number", "a number, not a string"},
      {"bad_offset_three", "more than 2 numbers"},
      {"bad_overlap", "tensor 'b': data_offsets [4, 12] overlap"},
      {"bad_pickle_zip", "zip archive, as torch.save writes"},
      {"bad_product_overflow", "overflows 64 bits"},
      {"bad_trailing_byte", "but the file has 17: something was appended"},
      {"bad_truncated_1", "but the file has 15: it is cut short"},
      {"bad_truncated_half", "but the file has 8: it is cut short"},
      {"bad_zero_bytes", "the file has 0 bytes"},
      {"dup_field", "dtype occurs twice"},
      {"dup_name_diff", "tensor 'a' occurs twice"},
      {"dup_name_same", "tensor 'a' occurs twice"},
      {"nul_padding", "NUL at byte 57 of 64"},
  };
  const auto found = words->find(name);
  return found == words->end() ? "" : found->second;
}

TEST_CASE("Case files: what should load loads and what should be refused is refused") {
  const std::string folder = CasesFolder("ZERO_CASES_DIR", "shared/cases/safetensors");
  if (folder.empty()) return;
  int tried = 0;
  for (const fs::path& path : Sorted(folder)) {
    if (path.extension() != ".safetensors") continue;
    ++tried;
    const std::string name = path.stem().string();
    const auto file = SafetensorsFile::Open(path.string());
    INFO(name << ": " << file.status().ToString());
    const std::optional<bool> must_load = MustLoad(name);
    if (must_load.has_value()) CHECK(file.ok() == *must_load);
    if (!file.ok()) {
      CHECK_THAT(std::string(file.status().message()),
                 ContainsSubstring(path.string()) && ContainsSubstring(WordsFor(name)));
      continue;
    }
    for (const SafetensorsTensor& tensor : file->tensors()) {
      std::vector<char> raw(static_cast<size_t>(tensor.bytes()));
      CHECK_OK(file->ReadBytes(tensor.name, 0, absl::MakeSpan(raw)));
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      const absl::Status read = file->Read(tensor.name, 0, absl::MakeSpan(values));
      // Other dtypes than the three that can be read are named.
      if (!read.ok()) {
        CHECK(absl::IsInvalidArgument(read));
        CHECK_THAT(std::string(read.message()), ContainsSubstring(" is " + tensor.dtype));
      }
    }
  }
  CHECK(tried > 0);
}

struct Wanted {
  bool loads = true;
  // What the error or the one note holds; empty: there is no note.
  std::string words;
  // Of a, b and c, in order, whatever file they are in.
  std::vector<float> values = {1, 2, 3, 4, 5};
};

TEST_CASE("Case folders: each gives its tensors or a note or the right refusal") {
  const std::string folder = CasesFolder("ZERO_INDEX_CASES_DIR", "shared/cases/index");
  if (folder.empty()) return;
  const std::string second = "model-00002-of-00002.safetensors";
  const std::map<std::string, Wanted> table = {
      {"ok", {}},
      {"ok_no_metadata", {}},
      {"ok_extra_shard_file", {true, "model-00003-of-00003.safetensors is not in the index"}},
      {"ok_extra_tensor_in_shard", {true, "left out: tensor 'rotary_emb.inv_freq'"}},
      {"ok_one_tensor_per_file", {}},
      {"ok_no_index_single", {}},
      {"bad_missing_shard", {false, second + " is missing, which should hold 2 tensors"}},
      {"bad_tensor_not_in_shard",
       {false, "tensor 'b' is in " + second + ", the index says in model-00001-of-00002"}},
      {"bad_total_size", {true, "9999 bytes, but they have 20"}},
      {"bad_path_traversal", {false, "../ok/model-00001-of-00002.safetensors"}},
      {"bad_index_truncated", {false, "line 5 column 17: expected a value"}},
      {"bad_both_single_and_index",
       {true, "model.safetensors is there, and comes first", {8, 8, 3, 4, 5}}},
  };
  size_t found = 0;
  for (const fs::path& path : Sorted(folder)) {
    const auto wanted = table.find(path.filename().string());
    if (wanted == table.end()) continue;
    ++found;
    const auto weights = WeightFolder::Open(path.string());
    INFO(path << ": " << weights.status().ToString());
    REQUIRE(weights.ok() == wanted->second.loads);
    if (!weights.ok()) {
      CHECK_THAT(std::string(weights.status().message()),
                 ContainsSubstring(path.string()) && ContainsSubstring(wanted->second.words));
      continue;
    }
    const bool notes = !wanted->second.words.empty();
    REQUIRE(weights->notes().size() == (notes ? 1 : 0));
    if (notes) CHECK_THAT(weights->notes()[0], ContainsSubstring(wanted->second.words));
    CHECK(weights->tensors().size() == 3);
    std::vector<float> read;
    for (const auto& [name, tensor] : weights->tensors()) {
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      CHECK_OK(weights->Read(name, 0, absl::MakeSpan(values)));
      read.insert(read.end(), values.begin(), values.end());
    }
    CHECK(read == wanted->second.values);
  }
  CHECK(found == table.size());
}

}  // namespace
}  // namespace zero
