#include "examples/train/save.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/dtype.h"
#include "device/status.h"
#include "examples/support/text.h"

namespace zero::train {

absl::StatusOr<WeightsSaved> SaveModel(ShardedOptimizer& optimizer, const Options& options,
                                       const llama::LlamaConfig& model) {
  SaveWeightsOptions save;
  const bool automatic = options.output_dtype == "auto";
  ZERO_ASSIGN_OR_RETURN(const DType dtype,
                        ParseDType(automatic ? options.dtype : options.output_dtype));
  if (!automatic) save.dtype = dtype;
  save.max_shard_bytes = options.max_shard_size;
  std::error_code error;
  if (std::filesystem::is_directory(options.model, error)) save.copy_from = options.model;
  ZERO_ASSIGN_OR_RETURN(std::string config, llama::ToJson(model, dtype));
  save.files.emplace_back("config.json", std::move(config));
  return optimizer.SaveWeights(options.output, save);
}

std::string DescribeSaved(const Options& options, const WeightsSaved& saved) {
  return absl::StrCat("saved to ", options.output, ": ", saved.tensors, " tensors, ",
                      support::WithSeparators(saved.data_bytes), " bytes in ", saved.files,
                      saved.files == 1 ? " file" : " files",
                      saved.shared ? "" : ", on each disk that ranks do not share");
}

}  // namespace zero::train
