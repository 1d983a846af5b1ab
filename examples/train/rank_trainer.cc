#include "examples/train/rank_trainer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/model_description.h"
#include "examples/llama/train_pass.h"
#include "examples/train/groups.h"
#include "examples/train/memory_limits.h"
#include "examples/train/rank_device.h"
#include "zero/initializer.h"

namespace zero::train {

RankTrainer::RankTrainer(const Job& job, ProcessGroup* group)
    : job_(job),
      group_(group),
      checkpoints_(job.checkpoints, job.options, job.model, *job.data, group) {}

RankTrainer::~RankTrainer() {
  // The optimizer waits for its own streams; the buffers of the others wait for nobody.
  if (stream_ != nullptr) (void)stream_->Synchronize();
}

absl::Status RankTrainer::Initialise() {
  const Options& options = job_.options;
  ZERO_ASSIGN_OR_RETURN(const llama::LlamaModel::Options model, ModelOptions(options, job_.model));
  ZERO_ASSIGN_OR_RETURN(device_, MakeDevice({options.device, job_.cuda_device}, job_.pool));
  if (options.offload.device_memory > 0) device_->set_capacity(options.offload.device_memory);
  device_->set_host_capacity(
      HostCapacity(options.offload, job_.group == nullptr ? options.ranks : 1));
  ZERO_ASSIGN_OR_RETURN(stream_, device_->CreateStream(absl::StrCat("model-", group_->rank())));
  ZERO_ASSIGN_OR_RETURN(model_, llama::LlamaModel::Create(job_.model, model, device_.get()));
  ZERO_ASSIGN_OR_RETURN(exchange_,
                        StepExchange::Create(device_.get(), group_, options.accumulation));
  ZERO_ASSIGN_OR_RETURN(Model grouped, GroupedModel(options, job_.model, model.dtype));
  ZERO_ASSIGN_OR_RETURN(optimizer_,
                        ShardedOptimizer::Create(OptimizerConfig(options), std::move(grouped),
                                                 device_.get(), group_));
  for (const std::string& note : optimizer_->notes()) {
    checkpoints_.Say(absl::StrCat("note        ", note));
  }
  ZERO_ASSIGN_OR_RETURN(const bool resumed,
                        checkpoints_.Resume(device_.get(), *stream_, optimizer_.get()));
  applied_ = checkpoints_.applied_before();
  return resumed ? absl::OkStatus() : SetInitialWeights();
}

absl::Status RankTrainer::SetInitialWeights() {
  if (job_.weights != nullptr) {
    return job_.weights->Load(*optimizer_);
  }
  const auto deviation = [this](const Parameter& parameter) {
    return llama::InitialDeviation(job_.model, parameter);
  };
  return optimizer_->Write(
      State::kMaster,
      NormalInitializer(static_cast<uint64_t>(job_.options.seed), deviation, job_.pool));
}

absl::Status RankTrainer::Run() {
  const absl::Status status = RunSteps();
  // The optimizer stops every rank at the same step: none leaves before all have reported up to it.
  if (absl::IsOutOfRange(status) && checkpoints_.FinishWriting().ok() &&
      group_->Barrier(*stream_, kMetrics).ok()) {
    (void)stream_->Synchronize();
  }
  return status;
}

absl::Status RankTrainer::RunSteps() {
  const Options& options = job_.options;
  checkpoints_.Start(optimizer_.get());
  ZERO_RETURN_IF_ERROR(HearBeforeSteps());
  (void)NewTraffic();  // until now
  last_finish_ = Clock::now();
  offload_ = optimizer_->offload_report();
  int64_t step = checkpoints_.first_step();
  while (step < options.steps && !checkpoints_.stops()) {
    ++step;
    if (job_.before_step) ZERO_RETURN_IF_ERROR(job_.before_step(group_->rank(), step));
    ZERO_RETURN_IF_ERROR(EnqueueStep(step));
    const bool evaluate = options.evaluate_every > 0 && step % options.evaluate_every == 0;
    // A result is fetched while the next step runs, so that the device never waits for the host.
    const size_t may_wait = evaluate || step == options.steps ? 0 : 1;
    while (flights_.size() > may_wait) {
      const bool last = step == options.steps && flights_.size() == 1;
      ZERO_ASSIGN_OR_RETURN(StepReport report, TakeReport(last));
      if (evaluate && flights_.empty()) {
        ZERO_ASSIGN_OR_RETURN(report.evaluation_loss, Evaluate());
        for (const auto& [name, bytes] : NewTraffic()) report.wire[name] += bytes;
      }
      ZERO_RETURN_IF_ERROR(Report(report));
    }
    if (step < options.steps && !checkpoints_.stops()) {
      ZERO_RETURN_IF_ERROR(checkpoints_.AfterStep(step));
    }
    if (evaluate) last_finish_ = Clock::now();
  }
  while (!flights_.empty()) {  // after a signal
    ZERO_ASSIGN_OR_RETURN(const StepReport report, TakeReport(flights_.size() == 1));
    ZERO_RETURN_IF_ERROR(Report(report));
  }
  ZERO_RETURN_IF_ERROR(optimizer_->Finish());
  // With 0 any number of skips is fine, so all are.
  if (options.max_skips > 0 && step == options.steps) ZERO_RETURN_IF_ERROR(CheckProgress());
  return checkpoints_.Finish(step);
}

absl::Status RankTrainer::HearBeforeSteps() {
  ZERO_RETURN_IF_ERROR(exchange_->Enqueue(*stream_, kMetrics, 0, checkpoints_.Requests()));
  ZERO_ASSIGN_OR_RETURN(const Gathered gathered, exchange_->Take());
  checkpoints_.Hear(checkpoints_.first_step(), gathered.requests);
  return absl::OkStatus();
}

absl::Status RankTrainer::CheckProgress() const {
  if (applied_ || !first_skip_.has_value()) return absl::OkStatus();
  const StepResult& first = first_skip_->result;
  return absl::OutOfRangeError(absl::StrCat(
      "every step was skipped, ", first_skip_->step, " to ", job_.options.steps, ": in the first ",
      first.non_finite, " elements of the gradient are inf or NaN, the first in '",
      first.first_non_finite, "', owned by rank ", first.owner,
      ". The weights are as they were, and are not saved. Is the loss scale, ", first.loss_scale,
      ", too high for the run's length, or the rate?"));
}

absl::Status RankTrainer::EnqueueStep(int64_t step) {
  const Options& options = job_.options;
  const llama::Dealing dealing = DealingOf(options, group_->rank());
  int64_t valid_tokens = 0;
  for (int64_t micro = 0; micro < options.accumulation; ++micro) {
    ZERO_ASSIGN_OR_RETURN(const llama::Batch batch,
                          job_.data->FillBatch(checkpoints_.PositionOf(step), micro, dealing));
    valid_tokens += batch.valid_tokens;
    const bool last = micro + 1 == options.accumulation;
    const double loss_weight =
        last ? static_cast<double>(valid_tokens) * model_->options().loss_factor : 0;
    ZERO_RETURN_IF_ERROR(llama::TrainPass(*optimizer_, *model_, *stream_,
                                          last ? Pass::kTrainLast : Pass::kTrain, batch,
                                          exchange_->loss(micro), loss_weight));
  }
  ZERO_RETURN_IF_ERROR(
      exchange_->Enqueue(*stream_, kMetrics, options.accumulation, checkpoints_.Requests()));
  ZERO_ASSIGN_OR_RETURN(Pending<StepResult> result, optimizer_->Step());
  flights_.push_back({step, std::move(result), NewTraffic()});
  return absl::OkStatus();
}

absl::StatusOr<StepReport> RankTrainer::TakeReport(bool last) {
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  StepReport report;
  report.step = flight.step;
  ZERO_ASSIGN_OR_RETURN(const Gathered gathered, exchange_->Take());
  checkpoints_.Hear(report.step, gathered.requests);
  ZERO_ASSIGN_OR_RETURN(report.result, flight.result.Get());
  // Of other steps the next line has what goes on after the result.
  if (last && optimizer_->plan().config.offload.optimizer != Place::kDevice) {
    ZERO_RETURN_IF_ERROR(optimizer_->Finish());
  }
  const Clock::time_point now = Clock::now();
  report.seconds = std::chrono::duration<double>(now - last_finish_).count();
  last_finish_ = now;
  report.loss = gathered.mean_loss();
  report.tokens = gathered.tokens;
  report.memory = gathered.memory;
  report.wire = std::move(flight.wire);
  const OffloadReport offload = optimizer_->offload_report();
  report.offload = offload;
  report.offload -= std::exchange(offload_, offload);
  applied_ |= report.result.applied;
  if (!report.result.applied && !first_skip_.has_value()) first_skip_ = report;
  return report;
}

absl::StatusOr<double> RankTrainer::Evaluate() {
  llama::Dealing dealing = DealingOf(job_.options, group_->rank());
  dealing.accumulation = job_.options.evaluate_batches;
  Gathered sum;
  for (int64_t micro = 0; micro < dealing.accumulation; ++micro) {
    ZERO_ASSIGN_OR_RETURN(const llama::Batch batch,
                          job_.evaluation_data->FillBatch(0, micro, dealing));
    ZERO_RETURN_IF_ERROR(
        llama::EvaluatePass(*optimizer_, *model_, *stream_, batch, exchange_->loss(0)));
    ZERO_RETURN_IF_ERROR(exchange_->Enqueue(*stream_, kEvaluation, 1));
    ZERO_ASSIGN_OR_RETURN(const Gathered gathered, exchange_->Take());
    sum.loss_sum += gathered.loss_sum;
    sum.tokens += gathered.tokens;
  }
  return sum.mean_loss();
}

absl::Status RankTrainer::Report(const StepReport& report) {
  if (group_->rank() != 0 || !job_.report) return absl::OkStatus();
  return job_.report(report);
}

WireBytes RankTrainer::NewTraffic() {
  WireBytes added;
  for (const auto& [name, traffic] : group_->traffic()) {
    const int64_t before = std::exchange(traffic_[name], traffic.bytes);
    if (traffic.bytes != before) added[name] = traffic.bytes - before;
  }
  return added;
}

}  // namespace zero::train
