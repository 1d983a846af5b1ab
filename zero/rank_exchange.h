// Short texts between ranks, and what becomes of an error that one of them has alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/process_group.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/event.h"
#include "device/stream.h"

namespace zero {

// An error as a text for the other ranks, and as they have it: with the rank's number where there
// are several. kInternal where the text is none.
std::string TextOfError(const absl::Status& error);
absl::Status ErrorOfText(const std::string& text, size_t rank, int ranks);

// One rank's end. Driven by one thread. Texts pass through the device's memory, as everything does
// that ranks exchange.
class RankExchange {
 public:
  // Bytes of text that go in one collective.
  static constexpr int64_t kTextBytes = 496;

  // `device` and `group` must live longer; `what` names the memory in errors.
  static absl::StatusOr<RankExchange> Create(Device* device, ProcessGroup* group,
                                             const std::string& what);
  // What Create allocates as kStaging and, of the host, as kHostStaging.
  static int64_t DeviceBytes(int64_t ranks) { return (ranks + 1) * kRecordBytes; }
  static int64_t HostBytes(int64_t ranks) { return (ranks + 1) * kRecordBytes; }

  // [collective] Enqueues the exchange of one text of each rank, cut to kTextBytes, and returns.
  // Counted under `name`, a literal. At most one may wait for Take.
  absl::Status Enqueue(const Stream& stream, const char* name, const std::string& own);
  // What every rank gave, by rank. Waits for it.
  absl::StatusOr<std::vector<std::string>> Take();

  // [collective] Both at once, of texts of any length.
  absl::StatusOr<std::vector<std::string>> Run(const Stream& stream, const char* name,
                                               const std::string& own);

  // [collective] The same on every rank: OK if all of them say so, else what the first rank says
  // that does not, with its number, marked as Misuse: nothing that ranks share has changed. Any
  // other error is one of the group.
  absl::Status Agree(const Stream& stream, const char* name, const absl::Status& own);

 private:
  static constexpr int64_t kRecordBytes = 512;
  struct Record {
    int64_t text_bytes = 0;   // of this record
    int64_t total_bytes = 0;  // of the text that it is a piece of
    char text[kTextBytes] = {};
  };
  static_assert(sizeof(Record) == kRecordBytes);

  RankExchange(Device* device, ProcessGroup* group) : device_(device), group_(group) {}
  absl::Status EnqueueRecord(const Stream& stream, const char* name, const Record& own);
  absl::StatusOr<const Record*> TakeRecords();

  Device* device_;
  ProcessGroup* group_;
  Buffer memory_;   // own record, then those of all ranks
  Buffer staging_;  // likewise
  std::unique_ptr<Event> arrived_;
  bool waiting_ = false;
};

}  // namespace zero
