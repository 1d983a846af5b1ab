#include "examples/train/step_exchange.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero::train {

using llama::LossSum;

absl::StatusOr<std::unique_ptr<StepExchange>> StepExchange::Create(Device* device,
                                                                   ProcessGroup* group,
                                                                   int64_t micro_batches) {
  std::unique_ptr<StepExchange> exchange(new StepExchange(device, group, micro_batches));
  const int64_t bytes = RecordBytes(micro_batches);
  ZERO_ASSIGN_OR_RETURN(exchange->own_,
                        device->Allocate(bytes, MemoryCategory::kOther, "losses of a step"));
  ZERO_ASSIGN_OR_RETURN(exchange->all_,
                        device->Allocate(bytes * group->size(), MemoryCategory::kOther,
                                         "losses of a step on all ranks"));
  exchange->results_.resize(kOutstanding);
  for (Result& result : exchange->results_) {
    ZERO_ASSIGN_OR_RETURN(
        result.sent, device->AllocateHost(static_cast<int64_t>(sizeof(OwnNews)),
                                          MemoryCategory::kHostStaging, "memory table to send"));
    ZERO_ASSIGN_OR_RETURN(result.received,
                          device->AllocateHost(bytes * group->size(), MemoryCategory::kHostStaging,
                                               "losses of a step that have arrived"));
    ZERO_ASSIGN_OR_RETURN(result.event, device->CreateEvent());
  }
  return exchange;
}

int64_t StepExchange::RecordBytes(int64_t micro_batches) {
  return micro_batches * static_cast<int64_t>(sizeof(LossSum)) +
         static_cast<int64_t>(sizeof(OwnNews));
}

LossSum* StepExchange::loss(int64_t micro_batch) const { return own_.as<LossSum>() + micro_batch; }

absl::Status StepExchange::Enqueue(const Stream& stream, const char* name, int64_t micro_batches,
                                   uint64_t requests) {
  if (outstanding_.size() == kOutstanding || micro_batches > micro_batches_) {
    return absl::FailedPreconditionError(
        absl::StrCat("exchange of ", micro_batches, " losses, with ", outstanding_.size(),
                     " results not taken; at most ", micro_batches_, " and ", kOutstanding - 1));
  }
  Result& result = results_[next_];
  result.micro_batches = micro_batches;
  const OwnNews news{device_->memory(), requests};
  std::memcpy(result.sent.data(), &news, sizeof(news));

  // They follow the losses directly, so that all travels in one piece.
  const int64_t loss_bytes = micro_batches * static_cast<int64_t>(sizeof(LossSum));
  const auto news_bytes = static_cast<int64_t>(sizeof(OwnNews));
  ZERO_RETURN_IF_ERROR(
      device_->Copy(stream, own_.bytes_at(loss_bytes), result.sent.data(), news_bytes));
  const int64_t bytes = loss_bytes + news_bytes;
  const AllGatherPiece piece{own_.data(), all_.data(), bytes, bytes};
  ZERO_RETURN_IF_ERROR(group_->AllGather(stream, name, {&piece, 1}));
  ZERO_RETURN_IF_ERROR(
      device_->Copy(stream, result.received.data(), all_.data(), bytes * group_->size()));
  ZERO_RETURN_IF_ERROR(result.event->Record(stream));
  outstanding_.push_back(next_);
  next_ = (next_ + 1) % kOutstanding;
  return absl::OkStatus();
}

absl::StatusOr<Gathered> StepExchange::Take() {
  if (outstanding_.empty()) {
    return absl::FailedPreconditionError("no exchange of losses is outstanding");
  }
  const Result& result = results_[outstanding_.front()];
  // Twice: a rank that is silent fails the exchange at the deadline, and that error names it.
  ZERO_RETURN_IF_ERROR(result.event->Synchronize(2 * group_->deadline()));
  // An aborted exchange may end like a good one: see ProcessGroup::failure_flag.
  ZERO_RETURN_IF_ERROR(group_->Health());
  outstanding_.pop_front();

  Gathered gathered;
  const char* record = result.received.as<char>();
  for (int rank = 0; rank < group_->size(); ++rank) {
    for (int64_t micro = 0; micro < result.micro_batches; ++micro, record += sizeof(LossSum)) {
      LossSum loss;
      std::memcpy(&loss, record, sizeof(loss));
      gathered.loss_sum += loss.loss;
      gathered.tokens += loss.tokens;
    }
    OwnNews news;
    std::memcpy(&news, record, sizeof(news));
    record += sizeof(news);
    gathered.requests |= news.requests;
    const MemoryTable& memory = news.memory;
    for (size_t c = 0; c < memory.size(); ++c) {
      gathered.memory[c].current = std::max(gathered.memory[c].current, memory[c].current);
      gathered.memory[c].peak = std::max(gathered.memory[c].peak, memory[c].peak);
    }
  }
  return gathered;
}

}  // namespace zero::train
