// docs/configuration.md has every key.
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "zero/deepspeed_keys.h"

namespace zero {
namespace {

TEST_CASE("Configuration document: it has every known key with what becomes of it and why") {
  std::ifstream file(ZERO_SOURCE_DIR "/docs/configuration.md");
  REQUIRE(file.good());
  std::string line;
  while (std::getline(file, line) && line != "## Every key") continue;
  std::vector<std::string> rows;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "| `")) rows.push_back(line);
  }
  REQUIRE(rows.size() == DeepSpeedKeys().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const DeepSpeedKey& key = DeepSpeedKeys()[i];
    CHECK_THAT(rows[i], ContainsSubstring(absl::StrCat("| `", key.path, "` | ", Name(key.fate))));
    if (key.fate == KeyFate::kHonoured) continue;
    CHECK_THAT(rows[i], ContainsSubstring(absl::StrCat(" | ", key.reason, " |")));
  }
}

TEST_CASE("DeepSpeedKeys: each key occurs once and after its section") {
  std::set<std::string> known = {""};
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    CAPTURE(key.path);
    CHECK(known.count(SectionOf(key.path)) == 1);
    CHECK(known.insert(key.path).second);
    CHECK(PresentPath(key.path) == key.path);
  }
}

}  // namespace
}  // namespace zero
