#include "zero/optimizer_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/crc32c.h"
#include "zero/misuse.h"
#include "zero/save/checkpoint_description.h"
#include "zero/save/weight_load.h"
#include "zero/save/weight_save.h"

namespace zero {
namespace {

bool NothingToTrain(const Model& model) {
  bool frozen = false;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.trainable) return false;
      frozen = true;
    }
  }
  return frozen;
}

absl::Status CheckLossWeight(const char* verb, double weight) {
  if (std::isfinite(weight) && weight >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(verb, ": loss weight ", weight, " is not finite and at least 0"));
}

}  // namespace

OptimizerCore::~OptimizerCore() {
  // The trainer's streams may still use the memory that goes now.
  if (weights_ != nullptr) (void)weights_->WaitForUses(*arithmetic_);
  if (gradients_ != nullptr) (void)gradients_->WaitForUses(*arithmetic_);
  // Each drains: everything that one waits for on the other is enqueued by now.
  communication_.reset();
  arithmetic_.reset();
  offload_streams_ = OffloadStreams();
}

absl::Status OptimizerCore::Initialise(Device* device, ProcessGroup* group,
                                       const Adopted& adopted) {
  ZERO_ASSIGN_OR_RETURN(communication_, device->CreateStream(absl::StrCat("comm-", group->rank())));
  ZERO_ASSIGN_OR_RETURN(arithmetic_, device->CreateStream(absl::StrCat("math-", group->rank())));
  context_.plan = &plan_;
  context_.model = &model_;
  context_.device = device;
  context_.group = group;
  context_.communication = communication_.get();
  context_.arithmetic = arithmetic_.get();
  if (plan_.config.offload.optimizer != Place::kDevice) {
    ZERO_ASSIGN_OR_RETURN(offload_store_, OffloadStore::Create(context_));
    ZERO_ASSIGN_OR_RETURN(offload_streams_, OffloadStreams::Create(context_, *offload_store_));
    context_.offload = offload_streams_.all();
    context_.disk_failed = offload_store_->failed();
    context_.disk_failure = offload_store_->failure();
    ZERO_ASSIGN_OR_RETURN(
        pipeline_, OffloadPipeline::Create(context_, offload_store_.get(), &offload_streams_));
  }

  ZERO_ASSIGN_OR_RETURN(
      reduction_,
      OrderedReduction::Create(device, group, plan_.reduction.call_bytes, plan_.config.reduction));
  ZERO_ASSIGN_OR_RETURN(step_, StepController::Create(context_));
  ZERO_ASSIGN_OR_RETURN(progress_, StepProgress::Create(context_, step_->failures()));
  ZERO_ASSIGN_OR_RETURN(states_, OptimizerStates::Create(context_));
  const Parts parts{context_, &*reduction_, step_->norms(), pipeline_.get()};
  ZERO_ASSIGN_OR_RETURN(weights_, MakeWeights(parts, adopted));
  if (adopted.weights != nullptr) {
    ZERO_RETURN_IF_ERROR(states_->CopyWeights(*weights_));
    if (pipeline_ != nullptr) {
      ZERO_RETURN_IF_ERROR(pipeline_->CopyWeights(*weights_));
      ZERO_RETURN_IF_ERROR(offload_store_->Flush());
    }
  }
  ZERO_ASSIGN_OR_RETURN(gradients_, MakeGradients(parts, adopted));
  backward_updates_.emplace(context_, step_.get(), pipeline_.get(), weights_.get(),
                            gradients_.get());
  if (backward_updates_->on()) {
    gradients_->set_after_group(
        [this] { return backward_updates_->AfterGroup(training_passes_, loss_weight_); });
  }
  ZERO_ASSIGN_OR_RETURN(transfer_, StateTransfer::Create(context_, weights_.get(), gradients_.get(),
                                                         &*states_, offload_store_.get()));
  ZERO_ASSIGN_OR_RETURN(exchange_, RankExchange::Create(device, group, "texts between ranks"));
  ZERO_ASSIGN_OR_RETURN(saver_, CheckpointSaver::Create(context_, &*transfer_, step_.get()));
  return arithmetic_->Synchronize();
}

absl::Status OptimizerCore::Health() {
  if (!failure_.ok()) return failure_;
  for (const Stream* stream : context_.streams()) {
    const absl::Status health = stream->Health();
    if (!health.ok()) return Break(health);
  }
  const absl::Status group = context_.group->Health();
  if (!group.ok()) {
    return Break(absl::AbortedError(absl::StrCat("the group failed before: ", group.message())));
  }
  return absl::OkStatus();
}

absl::Status OptimizerCore::Break(const absl::Status& reason) {
  if (!failure_.ok()) return failure_;
  failure_ = reason;
  // Codes of misuse would say that nothing has happened; that of a damaged file, that a step was
  // half done.
  if (absl::IsInvalidArgument(reason) || absl::IsFailedPrecondition(reason) ||
      absl::IsNotFound(reason) || absl::IsDataLoss(reason)) {
    failure_ = absl::InternalError(reason.ToString());
  }
  // Nobody waits for this rank any more, and what is enqueued drains.
  context_.group->Abort(
      absl::Status(reason.code(), absl::StrCat("rank ", context_.rank(), ": ", reason.message())));
  if (progress_->MayBeHalfDone(*step_)) {
    failure_ = absl::DataLossError(
        absl::StrCat("a step failed halfway, load a checkpoint: ", reason.ToString()));
  }
  return failure_;
}

absl::Status OptimizerCore::Guarded(const absl::Status& status) {
  if (status.ok()) return status;
  return IsMisuse(status) ? WithoutMark(status) : Break(status);
}

absl::Status OptimizerCore::CheckVerb(const char* verb, int unit, const Stream& stream) {
  ZERO_RETURN_IF_ERROR(Health());
  if (unit < 0 || unit >= context_.units()) {
    return absl::InvalidArgumentError(
        absl::StrCat(verb, ": unit ", unit, " does not exist; the model has ", context_.units()));
  }
  if (&stream.device() != context_.device) {
    return absl::InvalidArgumentError(absl::StrCat(verb, " of unit '", context_.name(unit),
                                                   "': stream '", stream.name(),
                                                   "' belongs to another device"));
  }
  if (!pass_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(verb, " of unit '", context_.name(unit), "': call BeginPass first"));
  }
  return absl::OkStatus();
}

absl::Status OptimizerCore::FinishTrainingPass() {
  return training() ? Guarded(gradients_->FinishPass()) : absl::OkStatus();
}

absl::Status OptimizerCore::RequireWritten() const {
  if (half_loaded_) {
    return absl::DataLossError("a LoadCheckpoint failed halfway: load one that is whole");
  }
  if (!half_written_.has_value()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a Write of ", Name(*half_written_),
                                          "s failed halfway: write them again, or start anew"));
}

absl::Status OptimizerCore::BeginPass(Pass pass, double loss_weight) {
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_RETURN_IF_ERROR(CheckLossWeight("BeginPass", loss_weight));
  if (loss_weight > 0 && pass != Pass::kTrainLast) {
    return absl::InvalidArgumentError(absl::StrCat("BeginPass: loss weight ", loss_weight,
                                                   ": that of the step goes with its kTrainLast"));
  }
  ZERO_RETURN_IF_ERROR(RequireWritten());
  ZERO_RETURN_IF_ERROR(weights_->RequireReleased("BeginPass"));
  if (last_pass_begun_ && pass != Pass::kEvaluate) {
    return absl::FailedPreconditionError(
        "BeginPass: a pass with kTrainLast has begun since the last Step; call Step first");
  }
  if (pass != Pass::kEvaluate && NothingToTrain(model_)) {
    return absl::FailedPreconditionError(
        "BeginPass: nothing to train: every parameter of the model is frozen");
  }
  if (pass == Pass::kEvaluate && last_pass_begun_ && backward_updates_->on()) {
    return absl::FailedPreconditionError(
        "BeginPass with kEvaluate: with check_overflow false and no clipping, weights change "
        "during the kTrainLast pass; evaluate before it or after Step");
  }
  ZERO_RETURN_IF_ERROR(FinishTrainingPass());
  pass_ = pass;
  weights_->BeginPass(pass);
  if (pass == Pass::kEvaluate) return absl::OkStatus();
  ++training_passes_;
  last_pass_begun_ = pass == Pass::kTrainLast;
  gradients_->BeginPass(last_pass_begun_);
  loss_weight_ = loss_weight;
  return absl::OkStatus();
}

absl::StatusOr<Weights> OptimizerCore::AcquireWeights(int unit, const Stream& stream) {
  ZERO_RETURN_IF_ERROR(CheckVerb("AcquireWeights", unit, stream));
  if (backward_updates_->Changes(unit)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "AcquireWeights of unit '", context_.name(unit),
        "': its gradients of the kTrainLast pass are reduced, and with check_overflow false and no "
        "clipping its weights change before Step"));
  }
  if (training()) ZERO_RETURN_IF_ERROR(Guarded(step_->UseLossScale(stream)));
  absl::StatusOr<Weights> weights = weights_->Acquire(unit, stream);
  ZERO_RETURN_IF_ERROR(Guarded(weights.status()));
  return weights;
}

absl::Status OptimizerCore::ReleaseWeights(int unit, const Stream& stream) {
  ZERO_RETURN_IF_ERROR(CheckVerb("ReleaseWeights", unit, stream));
  ZERO_RETURN_IF_ERROR(Guarded(weights_->Release(unit, stream)));
  return Guarded(backward_updates_->UpdateReleased());
}

absl::StatusOr<Gradients> OptimizerCore::AcquireGradients(int unit, const Stream& stream) {
  ZERO_RETURN_IF_ERROR(CheckVerb("AcquireGradients", unit, stream));
  if (!training()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "AcquireGradients of unit '", context_.name(unit), "': an evaluation has no gradients"));
  }
  ZERO_RETURN_IF_ERROR(Guarded(step_->UseLossScale(stream)));
  absl::StatusOr<Gradients> gradients = gradients_->Acquire(unit, stream);
  ZERO_RETURN_IF_ERROR(Guarded(gradients.status()));
  return gradients;
}

absl::Status OptimizerCore::ReduceGradients(int unit, const Stream& stream,
                                            absl::Span<const int> unwritten) {
  ZERO_RETURN_IF_ERROR(CheckVerb("ReduceGradients", unit, stream));
  if (!training()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "ReduceGradients of unit '", context_.name(unit), "': an evaluation has no gradients"));
  }
  ZERO_RETURN_IF_ERROR(Guarded(gradients_->Reduce(unit, stream, unwritten)));
  return Guarded(backward_updates_->UpdateReleased());
}

absl::StatusOr<double> OptimizerCore::LossWeight(double given_to_step) const {
  ZERO_RETURN_IF_ERROR(CheckLossWeight("Step", given_to_step));
  if (given_to_step == 0 || given_to_step == loss_weight_) return loss_weight_;
  if (loss_weight_ > 0) {
    return absl::InvalidArgumentError(absl::StrCat("Step: loss weight ", given_to_step,
                                                   ", but BeginPass was given ", loss_weight_));
  }
  if (!backward_updates_->on()) return given_to_step;
  return absl::FailedPreconditionError(
      absl::StrCat("Step: loss weight ", given_to_step,
                   ": with check_overflow false and no clipping, units are updated before Step; "
                   "give it to BeginPass(kTrainLast)"));
}

absl::StatusOr<Pending<StepResult>> OptimizerCore::Step(double loss_weight) {
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_ASSIGN_OR_RETURN(const double divisor, LossWeight(loss_weight));
  ZERO_RETURN_IF_ERROR(weights_->RequireReleased("Step"));
  if (!last_pass_begun_) {
    return absl::FailedPreconditionError(
        "Step: no pass has begun with kTrainLast since the last Step");
  }
  ZERO_RETURN_IF_ERROR(Guarded(saver_->Advance()));
  ZERO_RETURN_IF_ERROR(FinishTrainingPass());
  pass_.reset();
  if (pipeline_ != nullptr) ZERO_RETURN_IF_ERROR(Guarded(pipeline_->AwaitGradients(*arithmetic_)));
  absl::StatusOr<Pending<StepResult>> result = step_->Decide(training_passes_, divisor);
  if (result.ok()) {
    // From here on the device may change weights.
    ZERO_RETURN_IF_ERROR(Guarded(UpdateAll()));
  } else if (!step_->stopped()) {
    return Guarded(result.status());
  }
  gradients_->EndStep();
  backward_updates_->EndStep();
  weights_->Forget();
  training_passes_ = 0;
  last_pass_begun_ = false;
  ZERO_RETURN_IF_ERROR(Guarded(result.status()));
  return result;
}

absl::Status OptimizerCore::UpdateAll() {
  // Some of it may have been done while backward ran.
  if (pipeline_ != nullptr && !backward_updates_->decided()) {
    ZERO_RETURN_IF_ERROR(pipeline_->BeginStep(*step_));
  }
  // Forward order: the next pass needs the first unit first.
  for (int u = 0; u < context_.units(); ++u) {
    ZERO_RETURN_IF_ERROR(states_->Update(u, *weights_, *gradients_, *step_));
    if (pipeline_ != nullptr && !backward_updates_->Updated(u)) {
      ZERO_RETURN_IF_ERROR(pipeline_->Update(u, *weights_));
    }
    if (context_.unit(u).trainable()) ZERO_RETURN_IF_ERROR(weights_->Share(u));
  }
  return progress_->Mark(step_->decided());
}

absl::Status OptimizerCore::RequireStepEnd(const char* verb) const {
  ZERO_RETURN_IF_ERROR(weights_->RequireReleased(verb));
  if (training_passes_ == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(verb, ": a training pass has begun; call Step first"));
}

absl::Status OptimizerCore::BeginTransfer(const char* verb, State state) {
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_RETURN_IF_ERROR(weights_->RequireReleased(verb));
  if (state != State::kGradient) ZERO_RETURN_IF_ERROR(RequireStepEnd(verb));
  if (state == State::kGradient) {
    if (!last_pass_begun_) {
      return absl::FailedPreconditionError(
          absl::StrCat(verb, " of gradients: they are whole between the last pass and Step only"));
    }
    ZERO_RETURN_IF_ERROR(FinishTrainingPass());
  }
  return Finish();
}

absl::Status OptimizerCore::Write(State state, const Source& source) {
  ZERO_RETURN_IF_ERROR(BeginTransfer("Write", state == State::kGradient ? State::kWeight : state));
  if (half_loaded_ || (half_written_.has_value() && *half_written_ != state)) {
    return RequireWritten();
  }
  half_written_ = state;
  const absl::Status written = transfer_->Write(state, source);
  // A state that cannot be written is refused before anything changes.
  if (written.ok() || state == State::kGradient) half_written_.reset();
  return written;
}

absl::Status OptimizerCore::Read(State state, const Sink& sink) {
  ZERO_RETURN_IF_ERROR(RequireWritten());
  const absl::Status begun = BeginTransfer("Read", state);
  if (begun.ok()) return transfer_->Read(state, *arithmetic_, sink);
  const bool whole = !failure_.ok() && !absl::IsDataLoss(failure_);
  if (!whole || state == State::kGradient) return begun;
  // The streams that failed have drained.
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                        context_.device->CreateStream("read-after-failure"));
  return transfer_->Read(state, *stream, sink);
}

absl::Status OptimizerCore::Gather(State state, const std::string& name, absl::Span<float> out) {
  ZERO_RETURN_IF_ERROR(RequireWritten());
  ZERO_RETURN_IF_ERROR(BeginTransfer("Gather", state));
  ZERO_RETURN_IF_ERROR(Guarded(transfer_->Gather(state, name, out)));
  // Where a failed group lets its streams go on, what arrived may be anything.
  return Health();
}

absl::StatusOr<Pending<CheckpointReport>> OptimizerCore::SaveCheckpoint(
    const std::string& folder, const CheckpointOptions& options) {
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_RETURN_IF_ERROR(RequireWritten());
  ZERO_RETURN_IF_ERROR(RequireStepEnd("SaveCheckpoint"));
  absl::StatusOr<Pending<CheckpointReport>> pending = saver_->Save(folder, options);
  ZERO_RETURN_IF_ERROR(Guarded(pending.status()));
  return pending;
}

absl::Status OptimizerCore::FinishCheckpoint() {
  ZERO_RETURN_IF_ERROR(Health());
  return Guarded(saver_->Finish());
}

absl::StatusOr<CheckpointLoaded> OptimizerCore::LoadCheckpoint(const std::string& path) {
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_RETURN_IF_ERROR(RequireStepEnd("LoadCheckpoint"));
  // What becomes of it, its Pending says.
  const absl::Status saved = saver_->Finish();
  if (!saved.ok() && !IsMisuse(saved)) return Break(saved);
  ZERO_RETURN_IF_ERROR(Finish());
  const auto agree = [this](const absl::Status& own) {
    return Guarded(exchange_->Agree(*communication_, kSaving, own));
  };
  absl::StatusOr<CheckpointLoader> loader = CheckpointLoader::Open(path, plan_, model_);
  ZERO_RETURN_IF_ERROR(agree(loader.status()));
  half_loaded_ = true;
  ZERO_RETURN_IF_ERROR(agree(Load(*loader)));
  const absl::StatusOr<std::string> hash = LoadedHash(loader->manifest());
  ZERO_RETURN_IF_ERROR(Guarded(hash.status()));
  const absl::StatusOr<std::vector<std::string>> hashes =
      exchange_->Run(*communication_, kSaving, *hash);
  ZERO_RETURN_IF_ERROR(Guarded(hashes.status()));
  for (size_t r = 0; r < hashes->size(); ++r) {
    if ((*hashes)[r] == (*hashes)[0]) continue;
    return absl::DataLossError(absl::StrCat(
        path, ": ranks 0 and ", r,
        " have loaded different things; do they see the same folder, and the same file in it?"));
  }
  half_loaded_ = false;
  half_written_.reset();
  const CheckpointManifest& manifest = loader->manifest();
  CheckpointLoaded loaded;
  loaded.path = path;
  loaded.step = manifest.step;
  loaded.applied_steps = manifest.counts.applied;
  loaded.world_size = manifest.world_size;
  loaded.stage = manifest.stage;
  loaded.attributes = manifest.attributes;
  loaded.notes = loader->Notes(plan_.config);
  return loaded;
}

absl::Status OptimizerCore::Load(CheckpointLoader& loader) {
  ZERO_RETURN_IF_ERROR(transfer_->Write(State::kMaster, loader.source(State::kMaster)));
  ZERO_RETURN_IF_ERROR(transfer_->Write(State::kMoment1, loader.source(State::kMoment1)));
  ZERO_RETURN_IF_ERROR(transfer_->Write(State::kMoment2, loader.source(State::kMoment2)));
  const CheckpointManifest& manifest = loader.manifest();
  ZERO_RETURN_IF_ERROR(step_->Restore(manifest.counts.steps, StateOf(manifest.counts)));
  progress_->Restart(manifest.counts.steps);
  return absl::OkStatus();
}

absl::StatusOr<std::string> OptimizerCore::LoadedHash(const CheckpointManifest& manifest) {
  const std::string text = FormatManifest(manifest);
  uint32_t crc = Crc32c(0, {text.data(), text.size()});
  ZERO_ASSIGN_OR_RETURN(crc, transfer_->ChecksumOfWholeWeights(crc));
  return absl::StrCat(crc);
}

absl::StatusOr<WeightsSaved> OptimizerCore::SaveWeights(const std::string& folder,
                                                        const SaveWeightsOptions& options) {
  ZERO_RETURN_IF_ERROR(RequireWritten());
  ZERO_RETURN_IF_ERROR(BeginTransfer("SaveWeights", State::kWeight));
  if (plan_.config.stage == 3 && !plan_.config.gather_16bit_weights_on_model_save) {
    return absl::FailedPreconditionError(
        "SaveWeights: stage3_gather_16bit_weights_on_model_save is false, so that in stage 3 only "
        "checkpoints are written; set it to true to save whole weights");
  }
  absl::StatusOr<WeightsSaved> saved =
      zero::SaveWeights(context_, &*transfer_, &*exchange_, folder, options);
  ZERO_RETURN_IF_ERROR(Guarded(saved.status()));
  return saved;
}

absl::StatusOr<WeightsLoaded> OptimizerCore::LoadWeights(const std::string& folder,
                                                         const LoadWeightsOptions& options) {
  ZERO_RETURN_IF_ERROR(BeginTransfer("LoadWeights", State::kWeight));
  // Both are set here.
  const bool again =
      !half_loaded_ && (half_written_ == State::kWeight || half_written_ == State::kMaster);
  if (!again) ZERO_RETURN_IF_ERROR(RequireWritten());
  absl::StatusOr<WeightLoader> loader = WeightLoader::Open(context_, &*exchange_, folder, options);
  ZERO_RETURN_IF_ERROR(Guarded(loader.status()));
  half_written_ = State::kMaster;
  absl::StatusOr<WeightsLoaded> loaded = loader->Load(&*transfer_);
  ZERO_RETURN_IF_ERROR(Guarded(loaded.status()));
  half_written_.reset();
  return loaded;
}

absl::Status OptimizerCore::Finish() {
  absl::Status drained;
  for (const Stream* stream : context_.streams()) drained.Update(stream->Synchronize());
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_RETURN_IF_ERROR(drained);
  progress_->Finished();
  return absl::OkStatus();
}

std::vector<std::string> OptimizerCore::notes() const {
  std::vector<std::string> notes = context_.device->notes();
  const auto add = [&notes](const std::string& note) {
    if (note.empty() || std::find(notes.begin(), notes.end(), note) != notes.end()) return;
    notes.push_back(note);
  };
  if (offload_store_ != nullptr && offload_store_->file() != nullptr) {
    add(offload_store_->file()->note());
    for (const std::string& removed : offload_store_->removed()) {
      add(absl::StrCat("removed ", removed, ", which a run had left that ended before it could"));
    }
    // The fast way is no news.
    const DiskLane& lane = *offload_streams_.disk_read;
    if (lane.way() != DiskWay::kRing) add(lane.note());
  }
  return notes;
}

std::string OptimizerCore::accounting_json() const {
  std::string json = "{\"memory\": {";
  const MemoryTable table = context_.device->memory();
  const char* separator = "";
  for (int i = 0; i < kMemoryCategories; ++i) {
    if (table[i].peak == 0) continue;
    absl::StrAppend(&json, separator, "\"", Name(static_cast<MemoryCategory>(i)),
                    "\": {\"current\": ", table[i].current, ", \"peak\": ", table[i].peak, "}");
    separator = ", ";
  }
  absl::StrAppend(&json, "}, \"wire\": {");
  separator = "";
  for (const auto& [name, traffic] : context_.group->traffic()) {
    absl::StrAppend(&json, separator, "\"", name, "\": {\"calls\": ", traffic.calls,
                    ", \"bytes\": ", traffic.bytes, "}");
    separator = ", ";
  }
  const DiskTraffic disk = offload_streams_.disk_traffic();
  absl::StrAppend(&json, "}, \"link\": {\"to_device\": ", context_.device->bytes_to_device(),
                  ", \"from_device\": ", context_.device->bytes_from_device(),
                  "}, \"disk\": {\"read\": ", disk.bytes_read,
                  ", \"written\": ", disk.bytes_written, "}");
  absl::StrAppend(&json, ", \"host_waits\": ", context_.device->host_waits(), ", \"reduction\": \"",
                  reduction_->reduction_choice(), "\"}");
  return json;
}

}  // namespace zero
