#include "zero/save/weight_save.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/sha256.h"
#include "device/status.h"
#include "io/folder.h"
#include "io/posix_file.h"
#include "io/weight_index.h"
#include "zero/misuse.h"
#include "zero/save/publish.h"
#include "zero/save/staging_folder.h"
#include "zero/save/weight_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

// Not to be copied: weights in any of the usual forms, and what says where they are.
bool IsOtherWeights(const std::string& name) {
  for (const char* end : {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json"}) {
    if (absl::EndsWithIgnoreCase(name, end)) return true;
  }
  return false;
}

absl::Status CheckArguments(const std::string& folder, const SaveWeightsOptions& options) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("SaveWeights: ", parts...));
  };
  if (folder.empty()) return wrong("the folder has no name");
  if (options.max_shard_bytes < 1) {
    return wrong("max_shard_bytes is ", options.max_shard_bytes, "; it must be at least 1");
  }
  std::set<std::string> names;
  for (const auto& [name, content] : options.files) {
    if (name.empty() || name.front() == '.' || name != fs::path(name).filename().string() ||
        IsOtherWeights(name)) {
      return wrong("'", name, "' is no name of a file beside the weights");
    }
    if (!names.insert(name).second) return wrong("file '", name, "' is given twice");
  }
  return absl::OkStatus();
}

// What ranks must agree on; folders may be called differently on each.
std::string HashOf(const SaveWeightsOptions& options) {
  std::string text = absl::StrCat(options.dtype.has_value() ? Name(*options.dtype) : "as they are",
                                  "\n", options.max_shard_bytes, "\n");
  for (const auto& [name, content] : options.files) {
    absl::StrAppend(&text, name, "\n", absl::BytesToHexString(Sha256(content)), "\n");
  }
  return Sha256(text);
}

// The files of copy_from that are to be copied into `target`.
absl::StatusOr<std::vector<std::string>> FilesToCopy(const SaveWeightsOptions& options,
                                                     const std::string& target) {
  std::vector<std::string> names;
  std::error_code error;
  if (options.copy_from.empty() || fs::equivalent(options.copy_from, target, error)) return names;
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all, ListFolder(options.copy_from));
  for (const std::string& name : all) {
    const bool given = std::any_of(options.files.begin(), options.files.end(),
                                   [&](const auto& file) { return file.first == name; });
    const bool file = fs::is_regular_file(fs::path(options.copy_from) / name, error);
    if (file && !given && !IsOtherWeights(name)) names.push_back(name);
  }
  return names;
}

class WeightSaver {
 public:
  WeightSaver(const Context& context, StateTransfer* transfer, RankExchange* exchange,
              const SaveWeightsOptions& options, StagingFolder folder, WeightFilesPlan plan)
      : context_(context),
        transfer_(transfer),
        exchange_(exchange),
        options_(options),
        folder_(std::move(folder)),
        plan_(std::move(plan)),
        writer_(&plan_, folder_.path()) {}

  absl::StatusOr<WeightsSaved> Run() {
    ZERO_RETURN_IF_ERROR(Agree(folder_.leads() ? MakeFiles() : absl::OkStatus()));
    ZERO_RETURN_IF_ERROR(folder_.shared() ? WriteOwn() : WriteWhole());
    ZERO_RETURN_IF_ERROR(CheckBytes());
    ZERO_RETURN_IF_ERROR(Agree(folder_.leads() ? CheckFiles() : absl::OkStatus()));
    ZERO_RETURN_IF_ERROR(Agree(folder_.leads() ? Publish() : absl::OkStatus()));
    return WeightsSaved{plan_.tensors, plan_.data_bytes, static_cast<int>(plan_.shards.size()),
                        folder_.shared()};
  }

 private:
  absl::Status Agree(const absl::Status& own) {
    return exchange_->Agree(*context_.communication, kSaving, own);
  }
  // An error of files is told to the others; an error of device or group has ended the group.
  absl::Status AgreeOnFiles(const absl::Status& own) {
    return own.ok() || IsMisuse(own) ? Agree(own) : own;
  }
  StateTransfer::ByteSink SinkOf(int unit) {
    return [this, unit](int parameter, int64_t first, absl::Span<const char> bytes) {
      return writer_.Write(unit, parameter, first, bytes);
    };
  }

  // Everything but the weights themselves.
  absl::Status MakeFiles() {
    ZERO_RETURN_IF_ERROR(writer_.Create());
    const auto path_of = [&](const std::string& name) { return folder_.path() + "/" + name; };
    if (!plan_.index.empty()) {
      ZERO_RETURN_IF_ERROR(zero::WriteWhole(path_of(kWeightIndexName), plan_.index));
    }
    ZERO_ASSIGN_OR_RETURN(others_, FilesToCopy(options_, folder_.target()));
    for (const std::string& name : others_) {
      ZERO_RETURN_IF_ERROR(CopyWhole(options_.copy_from + "/" + name, path_of(name)));
    }
    for (const auto& [name, content] : options_.files) {
      ZERO_RETURN_IF_ERROR(zero::WriteWhole(path_of(name), content));
      others_.push_back(name);
    }
    return absl::OkStatus();
  }

  // [collective] Every rank writes what it owns.
  absl::Status WriteOwn() {
    absl::Status written;
    for (int u = 0; u < context_.units() && written.ok(); ++u) {
      written = transfer_->ReadBytes(u, options_.dtype, SinkOf(u));
    }
    if (written.ok()) written = Misuse(writer_.Finish());
    // The first rank that hears of an error removes the files.
    writer_.GiveUp();
    return AgreeOnFiles(written);
  }

  // [collective] The first rank of each folder writes everything.
  absl::Status WriteWhole() {
    for (int u = 0; u < context_.units(); ++u) {
      ZERO_RETURN_IF_ERROR(AgreeOnFiles(
          transfer_->GatherBytes(u, options_.dtype, folder_.leads() ? SinkOf(u) : nullptr)));
    }
    return Agree(writer_.Finish());
  }

  // [collective] Each folder has got as many bytes as the model has.
  absl::Status CheckBytes() {
    int64_t wanted = 0;
    for (const Unit& unit : context_.model->units) {
      for (const Parameter& parameter : unit.parameters) {
        wanted += ElementCount(parameter) * SizeOf(options_.dtype.value_or(parameter.dtype));
      }
    }
    int64_t written = writer_.bytes_written();
    if (folder_.shared()) {
      ZERO_ASSIGN_OR_RETURN(
          const std::vector<std::string> all,
          exchange_->Run(*context_.communication, kSaving, absl::StrCat(written)));
      written = 0;
      for (const std::string& bytes : all) written += std::stoll(bytes);
    }
    if (!folder_.leads() || written == wanted) return Agree(absl::OkStatus());
    return Agree(absl::DataLossError(absl::StrCat(
        folder_.path(), ": ", written, " bytes of tensors were written, the model has ", wanted)));
  }

  absl::Status CheckFiles() {
    ZERO_RETURN_IF_ERROR(writer_.Verify());
    return SyncFolder(folder_.path());
  }

  absl::Status Publish() {
    ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers, folder_.Others());
    const Published published = PublishModel({folder_.target(), folder_.path(), plan_.names(),
                                              !plan_.index.empty(), others_, leftovers});
    if (published.abandoned) folder_.Abandon();
    ZERO_RETURN_IF_ERROR(published.status);
    folder_.Keep();
    return absl::OkStatus();
  }

  const Context& context_;
  StateTransfer* const transfer_;
  RankExchange* const exchange_;
  const SaveWeightsOptions& options_;
  StagingFolder folder_;
  const WeightFilesPlan plan_;
  WeightFilesWriter writer_;  // closed before the folder goes
  std::vector<std::string> others_;
};

}  // namespace

absl::StatusOr<WeightsSaved> SaveWeights(const Context& context, StateTransfer* transfer,
                                         RankExchange* exchange, const std::string& folder,
                                         const SaveWeightsOptions& options) {
  const Stream& stream = *context.communication;
  ZERO_RETURN_IF_ERROR(exchange->Agree(stream, kSaving, CheckArguments(folder, options)));
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> hashes,
                        exchange->Run(stream, kSaving, HashOf(options)));
  for (size_t r = 1; r < hashes.size(); ++r) {
    if (hashes[r] == hashes[0]) continue;
    return Misuse(absl::InvalidArgumentError(
        absl::StrCat("SaveWeights: the options of ranks 0 and ", r, " differ")));
  }
  absl::StatusOr<WeightFilesPlan> plan =
      PlanWeightFiles(*context.model, options.dtype, options.max_shard_bytes);
  if (!plan.ok()) return Misuse(plan.status());  // the same on every rank
  ZERO_ASSIGN_OR_RETURN(StagingFolder staging, StagingFolder::Create(context, exchange, folder));
  WeightSaver saver(context, transfer, exchange, options, std::move(staging), *std::move(plan));
  return saver.Run();
}

}  // namespace zero
