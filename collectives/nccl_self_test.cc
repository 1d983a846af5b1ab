#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "collectives/nccl_rank.h"
#include "device/status.h"

namespace zero {
namespace {

// A broken topology shows at once or never.
constexpr absl::Duration kSelfTestLimit = absl::Minutes(1);
constexpr int64_t kBytes = 256;  // from each rank to each rank

char TestByte(int from, int to, int64_t i) {
  return static_cast<char>((from * 31 + to * 7 + i) % 251);
}

}  // namespace

absl::Status NcclRank::SelfTest() {
  limit_ = std::min(deadline_, kSelfTestLimit);
  const absl::Status status = ExchangeTestBytes();
  limit_ = deadline_;
  std::lock_guard<std::mutex> lock(mutex_);
  traffic_.clear();  // the trainer's begins now
  return status;
}

absl::Status NcclRank::ExchangeTestBytes() {
  const int64_t all = kBytes * size_;
  ZERO_ASSIGN_OR_RETURN(Buffer host,
                        device_->AllocateHost(all, MemoryCategory::kOther, "self-test"));
  ZERO_ASSIGN_OR_RETURN(Buffer send, device_->Allocate(all, MemoryCategory::kOther, "self-test"));
  ZERO_ASSIGN_OR_RETURN(Buffer receive,
                        device_->Allocate(all, MemoryCategory::kOther, "self-test"));
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_->CreateStream("nccl self-test"));
  for (int q = 0; q < size_; ++q) {
    for (int64_t i = 0; i < kBytes; ++i) *host.bytes_at(q * kBytes + i) = TestByte(rank_, q, i);
  }
  const AllToAllPiece piece{send.data(), kBytes, receive.data(), kBytes};
  absl::Status status = device_->Copy(*stream, send.data(), host.data(), all);
  if (status.ok()) status = AllToAll(*stream, "self-test", {&piece, 1});
  if (status.ok()) status = device_->Copy(*stream, host.data(), receive.data(), all);
  if (!status.ok()) Abort(status);
  // After an abort the stream goes on; before, the watchdog sees to that.
  const absl::Status ran = stream->Synchronize();
  ZERO_RETURN_IF_ERROR(Health());
  ZERO_RETURN_IF_ERROR(ran);
  for (int q = 0; q < size_; ++q) {
    for (int64_t i = 0; i < kBytes; ++i) {
      if (*host.bytes_at(q * kBytes + i) == TestByte(q, rank_, i)) continue;
      return absl::InternalError(
          absl::StrCat("wrong bytes came from rank ", q, " to rank ", rank_));
    }
  }
  return absl::OkStatus();
}

}  // namespace zero
