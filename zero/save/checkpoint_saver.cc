#include "zero/save/checkpoint_saver.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/folder.h"
#include "io/posix_file.h"
#include "io/safetensors_image.h"
#include "zero/misuse.h"
#include "zero/save/checkpoint_description.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/step_controller.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank says of its part.
constexpr char kWorking = 'w';
constexpr char kDone = 'd';
constexpr char kFailed = 'e';  // then TextOfError

std::string Say(const absl::Status& status) {
  return status.ok() ? std::string(1, kDone)
                     : absl::StrCat(std::string(1, kFailed), TextOfError(status));
}

// What would make a manifest that cannot be read.
absl::Status CheckAttributes(const Attributes& attributes) {
  constexpr size_t kMost = 1 << 24;
  size_t bytes = 0;
  for (const auto& [key, value] : attributes) {
    bytes += key.size() + value.size();
    if (!PlanSafetensors({}, {{key, value}}).ok()) {
      return absl::InvalidArgumentError(absl::StrCat("SaveCheckpoint: attribute '",
                                                     absl::CHexEscape(key), "' is not UTF-8 text"));
    }
  }
  if (bytes <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("SaveCheckpoint: the attributes have ", bytes,
                                                 " bytes; at most ", kMost, " are kept"));
}

}  // namespace

int64_t CheckpointSlotBytes(const Plan& plan) {
  if (plan.config.checkpoint_memory == 0) return 0;
  // Of one rank, with some room for what does not fill a slot.
  int64_t needed = CheckpointWriter::kSlotBytes;
  for (size_t u = 0; u < plan.layout.units.size(); ++u) {
    const std::vector<Segment>& segments = plan.layout.units[u].segments;
    for (size_t s = 0; s < segments.size(); ++s) {
      const int64_t master = segments[s].trainable ? std::max(MasterBytes(plan.config, segments[s]),
                                                              SizeOf(segments[s].dtype))
                                                   : SizeOf(segments[s].dtype);
      int64_t element = plan.config.master == MasterKind::kSplit ? int64_t{4} : master;
      if (segments[s].trainable) element += plan.moments * 4;
      needed += segments[s].slice * element + 4096;
    }
  }
  const int64_t wanted = needed / CheckpointWriter::kSlotBytes + 2;
  const int64_t allowed = plan.config.checkpoint_memory / CheckpointWriter::kSlotBytes;
  return std::max<int64_t>(std::min(wanted, allowed), 2) * CheckpointWriter::kSlotBytes;
}

// The end of a checkpoint, for any thread.
class CheckpointSaver::Outcome : public PendingSource<CheckpointReport> {
 public:
  explicit Outcome(absl::Duration deadline) : deadline_(deadline) {}

  bool Ready() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return outcome_.has_value();
  }
  absl::StatusOr<CheckpointReport> Get() override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!outcome_.has_value() && std::this_thread::get_id() == driver_) {
      return absl::FailedPreconditionError(
          "the checkpoint is not complete, and cannot become so while the thread that drives the "
          "optimizer waits: call FinishCheckpoint on every rank, or go on with steps");
    }
    if (!resolved_.wait_for(lock, absl::ToChronoNanoseconds(2 * deadline_),
                            [&] { return outcome_.has_value(); })) {
      return absl::DeadlineExceededError(
          "the checkpoint is not complete: it becomes so in a later Step, or in FinishCheckpoint");
    }
    return *outcome_;
  }
  void Set(const absl::StatusOr<CheckpointReport>& outcome) {
    const std::lock_guard<std::mutex> lock(mutex_);
    outcome_ = outcome;
    resolved_.notify_all();
  }

 private:
  const absl::Duration deadline_;
  const std::thread::id driver_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  std::condition_variable resolved_;
  std::optional<absl::StatusOr<CheckpointReport>> outcome_;
};

struct CheckpointSaver::Job {
  std::string folder;  // that checkpoints are kept in
  std::string temporary_name;
  std::string temporary;  // path of this one while it is made
  std::string path;       // and afterwards
  Attributes attributes;
  Clock::time_point start;
  CheckpointReport report;
  std::shared_ptr<Outcome> outcome;
  bool publishing = false;  // all files are on the disk
  // What ends it, the same on every rank: the ranks that still worked then say only that they gave
  // up.
  absl::Status failure;
  // This rank's part of the phase, once it has ended.
  std::optional<absl::Status> ended;
  bool told_done = false;  // the others may know that this rank's file is on the disk
  CheckpointWriter::Written written;
  std::future<absl::Status> publisher;  // rank 0
};

CheckpointSaver::CheckpointSaver(const Context& context, const StepController* step)
    : context_(context), step_(step) {}

absl::StatusOr<std::unique_ptr<CheckpointSaver>> CheckpointSaver::Create(
    const Context& context, const StateTransfer* transfer, const StepController* step) {
  std::unique_ptr<CheckpointSaver> saver(new CheckpointSaver(context, step));
  saver->transfer_ = transfer;
  ZERO_ASSIGN_OR_RETURN(saver->exchange_, RankExchange::Create(context.device, context.group,
                                                               "progress of a checkpoint"));
  std::vector<char*> slots = transfer->host_staging();
  const int64_t bytes = CheckpointSlotBytes(*context.plan);
  if (bytes > 0) {
    ZERO_ASSIGN_OR_RETURN(
        saver->memory_,
        context.device->AllocateHost(bytes, MemoryCategory::kHostStaging, "checkpoint memory"));
    slots.clear();
    for (int64_t at = 0; at < bytes; at += CheckpointWriter::kSlotBytes) {
      slots.push_back(saver->memory_.bytes_at(at));
    }
  }
  ZERO_ASSIGN_OR_RETURN(saver->writer_,
                        CheckpointWriter::Create(context, *transfer, std::move(slots)));
  return saver;
}

CheckpointSaver::~CheckpointSaver() {
  if (job_ == nullptr) return;
  writer_->Cancel();
  (void)writer_->Take();
  if (job_->publisher.valid()) (void)job_->publisher.get();
  // Once this rank has said that its file is there, rank 0 may make a checkpoint of it.
  if (!job_->told_done) {
    // The other ranks' files go with them; the last to come removes the folder.
    const int ranks = context_.group->size();
    for (const std::string& name :
         {CheckpointFileName(context_.rank(), ranks), ChecksumsFileName(context_.rank(), ranks)}) {
      (void)RemoveTree(absl::StrCat(job_->temporary, "/", name));
    }
    (void)Files().RemoveFolder(job_->temporary.c_str());
  }
  Resolve(absl::AbortedError(
      absl::StrCat(job_->path, ": the optimizer ended before the checkpoint was complete; ",
                   "FinishCheckpoint waits for it")));
}

absl::StatusOr<Pending<CheckpointReport>> CheckpointSaver::Save(const std::string& given,
                                                                const CheckpointOptions& options) {
  // The working directory may change while it is written.
  std::error_code error;
  const std::string folder =
      given.empty() ? given : std::filesystem::absolute(given, error).string();
  // What became of the last one, its Pending says.
  const absl::Status last = Finish();
  if (!last.ok() && !IsMisuse(last)) return last;

  auto job = std::make_unique<Job>();
  job->start = Clock::now();
  job->folder = folder;
  job->attributes = options.attributes;
  job->outcome = std::make_shared<Outcome>(context_.group->deadline());
  const std::string name = CheckpointName(step_->steps());
  std::string temporary;
  absl::Status made;
  if (given.empty()) {
    made = absl::InvalidArgumentError("SaveCheckpoint: the folder is empty; it must name one");
  } else if (leads()) {
    made = CheckAttributes(options.attributes);
  }
  if (leads() && made.ok()) {
    temporary = TemporaryCheckpointName(step_->steps());
    made = MakeFolders(absl::StrCat(folder, "/", temporary));
    // It may be there, and not be on the disk.
    if (!made.ok()) (void)RemoveTree(absl::StrCat(folder, "/", temporary));
  }
  const Stream& stream = *context_.communication;
  const absl::Status agreed = exchange_->Agree(stream, kSaving, made);
  const absl::StatusOr<std::vector<std::string>> names =
      agreed.ok() ? exchange_->Run(stream, kSaving, temporary) : agreed;
  if (!names.ok()) {
    if (!temporary.empty()) (void)RemoveTree(absl::StrCat(folder, "/", temporary));
    return names.status();
  }
  job->temporary_name = names->front();
  job->temporary = absl::StrCat(folder, "/", names->front());
  job->path = absl::StrCat(given, "/", name);
  job->report.path = job->path;
  job->report.step = step_->steps();

  absl::Status begun =
      writer_->Begin(absl::StrCat(job->temporary, "/",
                                  CheckpointFileName(context_.rank(), context_.group->size())),
                     CheckpointTensors(context_, *transfer_), options.force);
  if (absl::IsNotFound(begun)) {
    begun = absl::NotFoundError(
        absl::StrCat(std::string(begun.message()), " (every rank must see the folder of rank 0)"));
  }
  job_ = std::move(job);
  if (!begun.ok()) job_->ended = begun;
  ZERO_RETURN_IF_ERROR(CopyAll());
  job_->report.bytes_before_return = begun.ok() ? writer_->bytes_written() : 0;
  Pending<CheckpointReport> pending(job_->outcome);
  if (CheckpointSlotBytes(*context_.plan) == 0) ZERO_RETURN_IF_ERROR(Finish());
  return pending;
}

absl::Status CheckpointSaver::CopyAll() {
  // Ranks go on together: one whose disk is slow says so before the others miss it.
  for (bool working = true; working;) {
    bool copied = true;
    if (!job_->ended.has_value()) {
      ZERO_ASSIGN_OR_RETURN(copied, writer_->Copy(*step_, Patience()));
    }
    ZERO_ASSIGN_OR_RETURN(
        const std::vector<std::string> said,
        exchange_->Run(*context_.communication, kSaving, copied ? "" : std::string(1, kWorking)));
    working = std::any_of(said.begin(), said.end(),
                          [](const std::string& text) { return !text.empty(); });
  }
  return absl::OkStatus();
}

std::chrono::nanoseconds CheckpointSaver::Patience() const {
  return absl::ToChronoNanoseconds(std::min(context_.group->deadline() / 4, absl::Seconds(5)));
}

std::string CheckpointSaver::Progress() {
  if (!job_->ended.has_value()) {
    if (!job_->publishing) {
      if (!writer_->Done()) return std::string(1, kWorking);
      absl::StatusOr<CheckpointWriter::Written> written = writer_->Take();
      job_->ended = written.status();
      if (written.ok()) {
        job_->written = *std::move(written);
        job_->report.bytes = job_->written.bytes;
        job_->ended = WriteChecksums(job_->written);
      }
    } else if (leads()) {
      if (job_->publisher.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        return std::string(1, kWorking);
      }
      job_->ended = job_->publisher.get();
    } else {
      job_->ended = absl::OkStatus();
    }
  }
  job_->told_done = job_->told_done || job_->ended->ok();
  return Say(*job_->ended);
}

absl::Status CheckpointSaver::Advance() {
  if (job_ == nullptr) return absl::OkStatus();
  if (exchanged_at_ >= 0) {
    if (step_->steps() < exchanged_at_ + kStepsInFlight) return absl::OkStatus();
    exchanged_at_ = -1;
    ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> said, exchange_->Take());
    Decide(said);
    if (job_ == nullptr) return absl::OkStatus();
  }
  exchanged_at_ = step_->steps();
  return exchange_->Enqueue(*context_.communication, kSaving, Progress());
}

absl::Status CheckpointSaver::Finish() {
  if (job_ == nullptr) return absl::OkStatus();
  const std::shared_ptr<Outcome> outcome = job_->outcome;
  while (job_ != nullptr) {
    if (exchanged_at_ < 0) {
      // The own part first, so that one exchange is enough; but not so long that the others, who
      // wait in it, take this rank for silent.
      if (!job_->ended.has_value()) {
        if (!job_->publishing) {
          writer_->Wait(Patience());
        } else if (leads()) {
          job_->publisher.wait_for(Patience());
        }
      }
      ZERO_RETURN_IF_ERROR(exchange_->Enqueue(*context_.communication, kSaving, Progress()));
    }
    exchanged_at_ = -1;
    ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> said, exchange_->Take());
    Decide(said);
  }
  const absl::Status status = outcome->Get().status();
  return status.ok() ? status : Misuse(status);
}

void CheckpointSaver::Decide(const std::vector<std::string>& said) {
  const auto begins = [](char letter) {
    return [letter](const std::string& text) { return !text.empty() && text[0] == letter; };
  };
  const auto failed = std::find_if(said.begin(), said.end(), begins(kFailed));
  const bool working = std::any_of(said.begin(), said.end(), begins(kWorking));
  if (failed != said.end()) {
    const auto rank = static_cast<size_t>(failed - said.begin());
    job_->failure.Update(ErrorOfText(failed->substr(1), rank, context_.group->size()));
    // Nobody writes into the folder any more when it is removed.
    writer_->Cancel();
    if (working) return;
    // With its manifest it is complete, and perhaps the only one.
    if (leads() && !ReadManifest(job_->temporary).ok()) (void)RemoveTree(job_->temporary);
    return Resolve(job_->failure);
  }
  if (working) return;
  if (job_->publishing) {
    job_->report.seconds = std::chrono::duration<double>(Clock::now() - job_->start).count();
    return Resolve(job_->report);
  }
  job_->publishing = true;
  job_->ended.reset();
  if (!leads()) return;
  try {
    job_->publisher = std::async(std::launch::async, [this] { return Publish(); });
  } catch (const std::system_error& error) {
    job_->ended = absl::ResourceExhaustedError(
        absl::StrCat(job_->path, ": no thread to make the checkpoint: ", error.what()));
  }
}

void CheckpointSaver::Resolve(const absl::StatusOr<CheckpointReport>& outcome) {
  job_->outcome->Set(outcome);
  job_.reset();
}

absl::Status CheckpointSaver::WriteChecksums(const CheckpointWriter::Written& written) const {
  ZERO_ASSIGN_OR_RETURN(
      const PosixFile file,
      PosixFile::CreateNew(absl::StrCat(
          job_->temporary, "/", ChecksumsFileName(context_.rank(), context_.group->size()))));
  return file.WriteAt(0, FormatChecksums(written.bytes, written.checksums));
}

absl::Status CheckpointSaver::Publish() const {
  const int ranks = context_.group->size();
  CheckpointManifest manifest = DescribeCheckpoint(*context_.plan, *context_.model);
  manifest.step = job_->report.step;
  manifest.counts = CountsOf(job_->report.step, job_->written.state);
  manifest.attributes = job_->attributes;
  for (int r = 0; r < ranks; ++r) {
    const std::string side = absl::StrCat(job_->temporary, "/", ChecksumsFileName(r, ranks));
    ZERO_ASSIGN_OR_RETURN(const std::string text, ReadWhole(side, int64_t{1} << 32));
    CheckpointFile& file = manifest.files[static_cast<size_t>(r)];
    ZERO_RETURN_IF_ERROR(ParseChecksums(side, text, file));
    ZERO_RETURN_IF_ERROR(RemoveTree(side));
  }
  const std::string text = FormatManifest(manifest);
  ZERO_RETURN_IF_ERROR(ParseManifest(text).status());
  // The files' names are on the disk before a manifest says that they are there.
  ZERO_RETURN_IF_ERROR(SyncFolder(job_->temporary));
  ZERO_RETURN_IF_ERROR(WriteWhole(absl::StrCat(job_->temporary, "/", kManifestName), text));
  return PublishCheckpoint(job_->folder, job_->temporary_name, job_->report.step);
}

}  // namespace zero
