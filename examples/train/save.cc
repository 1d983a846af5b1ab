#include "examples/train/save.h"

#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "device/dtype.h"
#include "device/status.h"
#include "examples/llama/element.h"
#include "io/folder.h"
#include "io/safetensors.h"

namespace zero::train {
namespace {

std::vector<SafetensorsTensor> Tensors(const Model& model) {
  std::vector<SafetensorsTensor> tensors;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      SafetensorsTensor tensor;
      tensor.name = parameter.name;
      tensor.dtype = SafetensorsName(parameter.dtype);
      tensor.shape = parameter.shape;
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// The values as the file holds them. Weights in 16 bits are exact, so that nothing is rounded.
absl::Span<const char> Encode(const std::vector<float>& values, DType dtype,
                              std::vector<char>& bytes) {
  bytes.resize(values.size() * static_cast<size_t>(SizeOf(dtype)));
  WithElementType(dtype, [&](auto element) {
    using T = decltype(element);
    T* const to = reinterpret_cast<T*>(bytes.data());
    for (size_t i = 0; i < values.size(); ++i) to[i] = llama::FromFloat<T>(values[i]);
  });
  return bytes;
}

}  // namespace

absl::Status SaveModel(ShardedOptimizer& optimizer, int rank, const llama::LlamaConfig& model,
                       const std::string& folder) {
  static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");
  const bool writes = rank == 0;
  std::unique_ptr<SafetensorsWriter> writer;
  if (writes) {
    ZERO_ASSIGN_OR_RETURN(
        writer, SafetensorsWriter::Create(folder + "/model.safetensors", Tensors(optimizer.model()),
                                          {{"format", "pt"}}, SafetensorsOrder::kSorted));
  }
  DType dtype = DType::kF32;
  std::vector<float> values;
  std::vector<char> bytes;
  for (const Unit& unit : optimizer.model().units) {
    for (const Parameter& parameter : unit.parameters) {
      dtype = parameter.dtype;
      values.resize(static_cast<size_t>(ElementCount(parameter)));
      ZERO_RETURN_IF_ERROR(
          optimizer.Gather(State::kWeight, parameter.name, absl::MakeSpan(values)));
      if (writes) {
        ZERO_RETURN_IF_ERROR(writer->Write(parameter.name, 0, Encode(values, dtype, bytes)));
      }
    }
  }
  if (!writes) return absl::OkStatus();
  ZERO_ASSIGN_OR_RETURN(const std::string config, llama::ToJson(model, dtype));
  ZERO_RETURN_IF_ERROR(writer->Finish());
  return WriteWhole(folder + "/config.json", config);
}

}  // namespace zero::train
