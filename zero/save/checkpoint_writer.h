// One rank's file of a checkpoint.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/decide.h"
#include "zero/context.h"
#include "zero/state_transfer.h"

namespace zero {

class StepController;

// What a rank's file holds: the runs of every state that it owns, masters and weights first, then
// the moments, each in registration order.
struct CheckpointTensor {
  std::string name;       // in the file
  std::string parameter;  // for messages
  DType dtype = DType::kF32;
  bool weight = false;  // a master, or a frozen weight: what must be finite
  StoredRun run;
};
std::vector<CheckpointTensor> CheckpointTensors(const Context& context,
                                                const StateTransfer& transfer);

// Copies state to memory of the host, on a stream and in order, and writes it to a file on a thread
// of its own. Between them is a ring of slots: the driving thread waits only for slots to be free.
// One file at a time.
class CheckpointWriter {
 public:
  static constexpr int64_t kSlotBytes = kTransferElements * 4;

  struct Written {
    int64_t bytes = 0;  // of the file
    std::vector<uint32_t> checksums;
    StepState state;  // as it was when the copies began
  };

  // `slots`: memory of the host, kSlotBytes each; at least two; free when no file is written.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(const Context& context,
                                                                  const StateTransfer& transfer,
                                                                  std::vector<char*> slots);
  // Gives up what is being written.
  ~CheckpointWriter();

  // Makes the file and starts the thread. kAlreadyExists.
  absl::Status Begin(const std::string& path, std::vector<CheckpointTensor> tensors, bool force);
  // Copies everything, on the arithmetic stream: what is enqueued there later may change it. True
  // when all of it is in the slots or in the file, or nothing more is wanted; false when slots were
  // not free for as long as `patience`: call it again before anything changes. An error is one of
  // the stream; those of the file are in Take.
  absl::StatusOr<bool> Copy(const StepController& step, std::chrono::nanoseconds patience);
  // The thread has ended. Never blocks.
  bool Done() const;
  // Until Done, or `patience` is over.
  void Wait(std::chrono::nanoseconds patience) const;
  // Bytes of state that were in the file at the moment.
  int64_t bytes_written() const;
  // The thread ends without writing what is left: Take gives kCancelled, or an earlier error.
  void Cancel();
  // Waits for the thread. The file is on the disk, under its name if the folder is synced.
  absl::StatusOr<Written> Take();

 private:
  // Elements of one tensor in a slot.
  struct Piece {
    const CheckpointTensor* tensor = nullptr;  // null: the StepState
    int64_t first = 0;                         // within the tensor
    int64_t count = 0;
    int64_t offset = 0;  // in the slot; parts lie one behind the other
  };
  struct Slot {
    char* memory = nullptr;
    std::unique_ptr<Event> copied;
    std::vector<Piece> pieces;
    int64_t bytes = 0;
  };

  CheckpointWriter(const Context& context, const StateTransfer& transfer);
  // What was enqueued for offloaded state comes before the copies.
  absl::Status AwaitOffload();
  // Makes slot_ the next one, empty; false when that took too long. Null if the thread has failed,
  // and nothing more is wanted.
  bool NextSlot(std::chrono::nanoseconds patience);
  absl::Status Submit();
  absl::StatusOr<bool> CopyTensors(const StepController& step, std::chrono::nanoseconds patience);
  void Close();
  void Write();
  absl::Status WriteSlot(const Slot& slot);
  absl::Status WritePiece(const Slot& slot, const Piece& piece);

  const Context& context_;
  const StateTransfer& transfer_;
  std::vector<Slot> slots_;
  std::vector<CheckpointTensor> tensors_;
  bool force_ = false;
  // Where Copy goes on: nothing yet, or elements of a tensor.
  Slot* slot_ = nullptr;
  bool state_copied_ = false;
  size_t next_tensor_ = 0;
  int64_t next_first_ = 0;
  struct File;
  std::unique_ptr<File> file_;
  std::thread thread_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int64_t filled_ = 0;   // slots given to the thread so far
  int64_t emptied_ = 0;  // and given back
  bool closed_ = true;
  bool cancelled_ = false;
  bool done_ = true;
  int64_t bytes_written_ = 0;
  absl::Status status_;
  Written written_;
};

}  // namespace zero
