#include "zero/save/weight_save.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "collectives/sha256.h"
#include "device/status.h"
#include "zero/misuse.h"
#include "zero/save/model_files.h"
#include "zero/save/staging_folder.h"
#include "zero/save/weight_files.h"

namespace zero {
namespace {

// What ranks must agree on; folders may be called differently on each.
std::string HashOf(const SaveWeightsOptions& options) {
  std::string text = absl::StrCat(options.dtype.has_value() ? Name(*options.dtype) : "as they are",
                                  "\n", options.max_shard_bytes, "\n");
  for (const auto& [name, content] : options.files) {
    absl::StrAppend(&text, name, "\n", absl::BytesToHexString(Sha256(content)), "\n");
  }
  return Sha256(text);
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
    ZERO_RETURN_IF_ERROR(Agree(folder_.leads() ? CheckStaged(folder_, writer_) : absl::OkStatus()));
    ZERO_RETURN_IF_ERROR(
        Agree(folder_.leads() ? PublishStaged(folder_, plan_, others_) : absl::OkStatus()));
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

  absl::Status MakeFiles() {
    ZERO_ASSIGN_OR_RETURN(others_, StageFiles(options_, plan_, folder_, writer_));
    return absl::OkStatus();
  }

  // [collective] Every rank writes what it owns.
  absl::Status WriteOwn() {
    absl::Status written;
    transfer_->Begin();
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
    transfer_->Begin();
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
  ZERO_RETURN_IF_ERROR(exchange->Agree(stream, kSaving, CheckSaveOptions(folder, options)));
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
