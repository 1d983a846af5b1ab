#include "zero/rank_exchange.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/misuse.h"

namespace zero {

std::string TextOfError(const absl::Status& error) {
  return absl::StrCat(static_cast<int>(error.code()), " ", std::string(error.message()));
}

absl::Status ErrorOfText(const std::string& text, size_t rank, int ranks) {
  const size_t space = text.find(' ');
  int code = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &code)) {
    code = static_cast<int>(absl::StatusCode::kInternal);
  }
  const std::string named = ranks == 1 ? "" : absl::StrCat("rank ", rank, ": ");
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrCat(named, text.substr(space + 1)));
}

absl::StatusOr<RankExchange> RankExchange::Create(Device* device, ProcessGroup* group,
                                                  const std::string& what) {
  RankExchange exchange(device, group);
  ZERO_ASSIGN_OR_RETURN(exchange.memory_, device->Allocate(DeviceBytes(group->size()),
                                                           MemoryCategory::kStaging, what));
  ZERO_ASSIGN_OR_RETURN(
      exchange.staging_,
      device->AllocateHost(HostBytes(group->size()), MemoryCategory::kHostStaging, what));
  ZERO_ASSIGN_OR_RETURN(exchange.arrived_, device->CreateEvent());
  return exchange;
}

absl::Status RankExchange::EnqueueRecord(const Stream& stream, const char* name,
                                         const Record& own) {
  Record* const device = memory_.as<Record>();
  Record* const host = staging_.as<Record>();
  std::memcpy(host, &own, sizeof(Record));
  ZERO_RETURN_IF_ERROR(device_->Copy(stream, device, host, kRecordBytes));
  const AllGatherPiece piece{device, device + 1, kRecordBytes, kRecordBytes};
  ZERO_RETURN_IF_ERROR(group_->AllGather(stream, name, {&piece, 1}));
  ZERO_RETURN_IF_ERROR(device_->Copy(stream, host + 1, device + 1, group_->size() * kRecordBytes));
  ZERO_RETURN_IF_ERROR(arrived_->Record(stream));
  waiting_ = true;
  return absl::OkStatus();
}

absl::StatusOr<const RankExchange::Record*> RankExchange::TakeRecords() {
  if (!waiting_) return absl::FailedPreconditionError("Take: no exchange was enqueued");
  waiting_ = false;
  ZERO_RETURN_IF_ERROR(arrived_->Synchronize(2 * group_->deadline()));
  // Where a failed group lets its streams go on, what arrived may be anything.
  ZERO_RETURN_IF_ERROR(group_->Health());
  return staging_.as<Record>() + 1;
}

absl::Status RankExchange::Enqueue(const Stream& stream, const char* name, const std::string& own) {
  Record record;
  record.text_bytes = std::min<int64_t>(static_cast<int64_t>(own.size()), kTextBytes);
  record.total_bytes = record.text_bytes;
  std::memcpy(record.text, own.data(), static_cast<size_t>(record.text_bytes));
  return EnqueueRecord(stream, name, record);
}

absl::StatusOr<std::vector<std::string>> RankExchange::Take() {
  ZERO_ASSIGN_OR_RETURN(const Record* const records, TakeRecords());
  std::vector<std::string> texts;
  for (int r = 0; r < group_->size(); ++r) {
    texts.emplace_back(records[r].text, static_cast<size_t>(records[r].text_bytes));
  }
  return texts;
}

absl::StatusOr<std::vector<std::string>> RankExchange::Run(const Stream& stream, const char* name,
                                                           const std::string& own) {
  std::vector<std::string> texts(static_cast<size_t>(group_->size()));
  const auto own_bytes = static_cast<int64_t>(own.size());
  int64_t longest = own_bytes;
  for (int64_t done = 0; done == 0 || done < longest; done += kTextBytes) {
    Record record;
    record.total_bytes = own_bytes;
    record.text_bytes = std::clamp<int64_t>(own_bytes - done, 0, kTextBytes);
    if (record.text_bytes > 0) {
      std::memcpy(record.text, own.data() + done, static_cast<size_t>(record.text_bytes));
    }
    ZERO_RETURN_IF_ERROR(EnqueueRecord(stream, name, record));
    ZERO_ASSIGN_OR_RETURN(const Record* const records, TakeRecords());
    for (int r = 0; r < group_->size(); ++r) {
      texts[static_cast<size_t>(r)].append(records[r].text,
                                           static_cast<size_t>(records[r].text_bytes));
      longest = std::max(longest, records[r].total_bytes);
    }
  }
  return texts;
}

absl::Status RankExchange::Agree(const Stream& stream, const char* name, const absl::Status& own) {
  if (group_->size() == 1) return own.ok() ? own : Misuse(own);
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        Run(stream, name, own.ok() ? "" : TextOfError(own)));
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) return Misuse(ErrorOfText(all[r], r, group_->size()));
  }
  return absl::OkStatus();
}

}  // namespace zero
