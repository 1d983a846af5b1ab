// A folder of case files from elsewhere, where one is given.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "io/safetensors.h"
#include "tests/catch.h"

namespace zero {
namespace {

// ZERO_CASES_DIR: files "ok_..." must load, "bad_..." must be refused, others must not crash.
TEST_CASE("Case files: what should load loads and what should be refused is refused") {
  const char* folder = std::getenv("ZERO_CASES_DIR");
  if (folder == nullptr) {
    WARN("ZERO_CASES_DIR is not given: no case files tried");
    return;
  }
  INFO("ZERO_CASES_DIR is '" << folder << "'; it must be a folder of .safetensors files");
  std::error_code error;
  REQUIRE(std::filesystem::is_directory(folder, error));
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  REQUIRE(!paths.empty());
  for (const std::filesystem::path& path : paths) {
    const std::string name = path.filename().string();
    const auto file = SafetensorsFile::Open(path.string());
    INFO(name << ": " << file.status().ToString());
    if (name.rfind("ok_", 0) == 0) CHECK(file.ok());
    if (name.rfind("bad_", 0) == 0) CHECK(!file.ok());
    if (std::getenv("ZERO_CASES_SHOW") != nullptr) WARN(name << ": " << file.status().ToString());
    if (!file.ok()) continue;
    for (const SafetensorsTensor& tensor : file->tensors()) {
      std::vector<char> raw(static_cast<size_t>(tensor.bytes()));
      CHECK_OK(file->ReadBytes(tensor.name, 0, absl::MakeSpan(raw)));
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      const absl::Status read = file->Read(tensor.name, 0, absl::MakeSpan(values));
      CHECK((read.ok() || absl::IsInvalidArgument(read)));
    }
  }
}

}  // namespace
}  // namespace zero
