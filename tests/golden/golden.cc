#include "tests/golden/golden.h"

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/catch.h"

namespace zero::golden {

std::string Folder() {
  const char* other = std::getenv("ZERO_GOLDEN_VALUES");
  return other != nullptr ? other : ZERO_GOLDEN_VALUES;
}

nlohmann::json Read(const std::string& name) {
  const std::string path = Folder() + "/" + name;
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file.is_open());
  nlohmann::json content = nlohmann::json::parse(file, nullptr, false);
  REQUIRE_FALSE(content.is_discarded());
  return content;
}

std::vector<float> Floats(const nlohmann::json& words) {
  const auto text = words.get<std::string>();
  REQUIRE(text.size() % 8 == 0);
  std::vector<float> values(text.size() / 8);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<uint32_t>(std::stoul(text.substr(8 * i, 8), nullptr, 16));
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
  return values;
}

int64_t UlpsBetween(float a, float b) {
  const auto place = [](float x) {
    int32_t bits = 0;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(place(a) - place(b));
}

}  // namespace zero::golden
