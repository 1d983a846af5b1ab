#include "tests/zero/saved_folders.h"

#include <cstring>
#include <filesystem>

#include "kernels/float16_math.h"
#include "zero/initializer.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

void AppendAs(float value, DType dtype, std::string& bytes) {
  const auto append = [&](const auto& element) {
    bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
  };
  if (dtype == DType::kF32) return append(value);
  if (dtype == DType::kBF16) return append(ToBFloat16(value));
  append(ToFloat16(value));
}

float Rounded(float value, DType dtype) {
  if (dtype == DType::kF32) return value;
  return dtype == DType::kBF16 ? ToFloat(ToBFloat16(value)) : ToFloat(ToFloat16(value));
}

}  // namespace

FileContents ReadFolder(const std::string& path) {
  FileContents contents;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory()) {
      contents[name + "/"] = "";
    } else {
      contents[name] = ReadFile(entry.path().string());
    }
  }
  return contents;
}

absl::StatusOr<FileContents> ReadTensors(const std::string& folder) {
  const absl::StatusOr<WeightFolder> files = WeightFolder::Open(folder);
  if (!files.ok()) return files.status();
  FileContents contents;
  for (const auto& [name, tensor] : files->tensors()) {
    std::string& bytes = contents[name];
    bytes.resize(static_cast<size_t>(tensor.bytes()));
    const absl::Status read = files->ReadBytes(name, 0, absl::MakeSpan(bytes.data(), bytes.size()));
    if (!read.ok()) return read;
  }
  return contents;
}

float ValueAt(int seed, const std::string& name, int64_t element) {
  const uint64_t mixed = (NameHash(name) + static_cast<uint64_t>(element)) * 0x9E3779B97F4A7C15u +
                         static_cast<uint64_t>(seed) * 0xD1B54A32D192ED03u;
  return static_cast<float>(static_cast<int32_t>(mixed >> 32)) * 0x1p-31f;
}

Source Values(int seed) {
  return [seed](const Parameter& parameter, int64_t first, absl::Span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = ValueAt(seed, parameter.name, first + static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  };
}

FileContents ExpectedTensors(const Model& model, int seed, std::optional<DType> dtype) {
  FileContents contents;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      const DType in_file = dtype.value_or(parameter.dtype);
      std::string& bytes = contents[parameter.name];
      for (int64_t i = 0; i < ElementCount(parameter); ++i) {
        float value = ValueAt(seed, parameter.name, i);
        // What is frozen has no master.
        if (!parameter.trainable) value = Rounded(value, parameter.dtype);
        AppendAs(value, in_file, bytes);
      }
    }
  }
  return contents;
}

absl::Status Run(const SavingRun& run) {
  LocalWorld world(run.ranks, absl::Seconds(20));
  return RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    auto rank = Rank::Create(run.config, run.model, group);
    if (!rank.ok()) return rank.status();
    const absl::Status written = rank->optimizer->Write(State::kMaster, Values(run.seed));
    return written.ok() ? run.body(*rank) : written;
  });
}

}  // namespace zero::test
