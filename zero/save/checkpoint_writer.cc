#include "zero/save/checkpoint_writer.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/checksummed_file.h"
#include "io/safetensors_image.h"
#include "zero/save/checkpoint_manifest.h"
#include "zero/step_controller.h"

namespace zero {
namespace {

constexpr int64_t kAlignment = 64;  // of parts in a slot

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

DType FileType(const StoredRun& run) {
  if (run.parts.size() > 1) return DType::kF32;  // a split master
  switch (run.parts[0].place.stored) {
    case StoredAs::kBF16:
    case StoredAs::kBF16Away:
      return DType::kBF16;
    case StoredAs::kF16:
      return DType::kF16;
    default:
      return DType::kF32;
  }
}

// The first of `n` values that is inf or NaN: all bits of the exponent are set. n if all are
// finite.
template <class Bits>
int64_t FirstNonFinite(const char* values, int64_t n, Bits exponent) {
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    bool any = false;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, values + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
      any |= (bits & exponent) == exponent;
    }
    if (!any) continue;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, values + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
      if ((bits & exponent) == exponent) return i;
    }
  }
  return n;
}

int64_t FirstNonFinite(const char* values, int64_t n, DType type) {
  switch (type) {
    case DType::kF32:
      return FirstNonFinite<uint32_t>(values, n, 0x7F800000u);
    case DType::kBF16:
      return FirstNonFinite<uint16_t>(values, n, 0x7F80u);
    case DType::kF16:
      return FirstNonFinite<uint16_t>(values, n, 0x7C00u);
  }
  return n;
}

}  // namespace

std::vector<CheckpointTensor> CheckpointTensors(const Context& context,
                                                const StateTransfer& transfer) {
  std::vector<CheckpointTensor> tensors;
  // State by state, as they are loaded.
  for (const State state : {State::kMaster, State::kMoment1, State::kMoment2}) {
    for (int u = 0; u < context.units(); ++u) {
      const std::vector<Parameter>& parameters = context.model->units[u].parameters;
      for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
        const bool trainable = parameters[p].trainable;
        if (!trainable && state != State::kMaster) continue;
        StoredRun run = transfer.Owned(state, u, p);
        if (run.count == 0) continue;
        const char* const name = state == State::kMoment1   ? kMoment1State
                                 : state == State::kMoment2 ? kMoment2State
                                 : trainable                ? kMasterState
                                                            : kWeightState;
        CheckpointTensor tensor;
        tensor.name = absl::StrCat(name, "/", parameters[p].name);
        tensor.parameter = parameters[p].name;
        tensor.dtype = FileType(run);
        tensor.weight = state == State::kMaster;
        tensor.run = std::move(run);
        tensors.push_back(std::move(tensor));
      }
    }
  }
  return tensors;
}

struct CheckpointWriter::File {
  ChecksummedWriter writer;
  std::string path;
  std::vector<char> joined;  // split masters, put together
};

CheckpointWriter::CheckpointWriter(const Context& context, const StateTransfer& transfer)
    : context_(context), transfer_(transfer) {}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(
    const Context& context, const StateTransfer& transfer, std::vector<char*> slots) {
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(context, transfer));
  for (char* memory : slots) {
    Slot slot;
    slot.memory = memory;
    ZERO_ASSIGN_OR_RETURN(slot.copied, context.device->CreateEvent());
    writer->slots_.push_back(std::move(slot));
  }
  return writer;
}

CheckpointWriter::~CheckpointWriter() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::Status CheckpointWriter::Begin(const std::string& path, std::vector<CheckpointTensor> tensors,
                                     bool force) {
  std::vector<SafetensorsTensor> entries;
  for (const CheckpointTensor& tensor : tensors) {
    SafetensorsTensor entry;
    entry.name = tensor.name;
    entry.dtype = SafetensorsName(tensor.dtype);
    entry.shape = {tensor.run.count};
    entries.push_back(std::move(entry));
  }
  ZERO_ASSIGN_OR_RETURN(const SafetensorsImage image,
                        PlanSafetensors(std::move(entries), {{"format", "zero checkpoint 1"}}));
  ZERO_ASSIGN_OR_RETURN(ChecksummedWriter file, ChecksummedWriter::Create(path));
  ZERO_RETURN_IF_ERROR(file.Append(image.start));
  file_ = std::make_unique<File>(File{std::move(file), path, {}});
  tensors_ = std::move(tensors);
  force_ = force;
  filled_ = emptied_ = 0;
  closed_ = cancelled_ = done_ = false;
  bytes_written_ = 0;
  status_ = absl::OkStatus();
  written_ = Written();
  slot_ = nullptr;
  state_copied_ = false;
  next_tensor_ = 0;
  next_first_ = 0;
  try {
    thread_ = std::thread([this] { Write(); });
  } catch (const std::system_error& error) {
    closed_ = done_ = true;
    file_.reset();
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": no thread to write it: ", error.what()));
  }
  return absl::OkStatus();
}

bool CheckpointWriter::NextSlot(std::chrono::nanoseconds patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  slot_ = nullptr;
  const auto count = static_cast<int64_t>(slots_.size());
  const auto ready = [&] { return filled_ - emptied_ < count || !status_.ok() || cancelled_; };
  if (!changed_.wait_for(lock, patience, ready)) return false;
  if (!status_.ok() || cancelled_) return true;
  slot_ = &slots_[static_cast<size_t>(filled_ % count)];
  slot_->pieces.clear();
  slot_->bytes = 0;
  return true;
}

absl::Status CheckpointWriter::Submit() {
  ZERO_RETURN_IF_ERROR(slot_->copied->Record(*context_.arithmetic));
  slot_ = nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++filled_;
  changed_.notify_all();
  return absl::OkStatus();
}

void CheckpointWriter::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

absl::StatusOr<bool> CheckpointWriter::Copy(const StepController& step,
                                            std::chrono::nanoseconds patience) {
  const absl::StatusOr<bool> copied = CopyTensors(step, patience);
  if (!copied.ok()) Cancel();
  if (!copied.ok() || *copied) Close();
  return copied;
}

absl::Status CheckpointWriter::AwaitOffload() {
  for (const Stream* stream : context_.offload) {
    if (transfer_.reads_disk()) {
      ZERO_RETURN_IF_ERROR(stream->Synchronize());
      continue;
    }
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, context_.device->CreateEvent());
    ZERO_RETURN_IF_ERROR(event->Record(*stream));
    ZERO_RETURN_IF_ERROR(context_.arithmetic->Wait(*event));
  }
  transfer_.Begin();
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointWriter::CopyTensors(const StepController& step,
                                                   std::chrono::nanoseconds patience) {
  const Stream& stream = *context_.arithmetic;
  const auto start = std::chrono::steady_clock::now();
  if (!state_copied_) {
    if (!NextSlot(patience)) return false;
    if (slot_ == nullptr) return true;
    slot_->pieces.push_back({});
    ZERO_RETURN_IF_ERROR(AwaitOffload());
    ZERO_RETURN_IF_ERROR(step.CopyState(stream, reinterpret_cast<StepState*>(slot_->memory)));
    slot_->bytes = Aligned(sizeof(StepState));
    state_copied_ = true;
  }
  for (; next_tensor_ < tensors_.size(); ++next_tensor_, next_first_ = 0) {
    const CheckpointTensor& tensor = tensors_[next_tensor_];
    int64_t element = 0;
    for (const StoredRun::Part& part : tensor.run.parts) element += BytesOf(part.place.stored);
    while (next_first_ < tensor.run.count) {
      if (slot_ == nullptr) {
        if (!NextSlot(patience)) return false;
        if (slot_ == nullptr) return true;
      }
      // Each part begins aligned.
      const int64_t room =
          kSlotBytes - slot_->bytes - kAlignment * static_cast<int64_t>(tensor.run.parts.size());
      if (room < element) {
        ZERO_RETURN_IF_ERROR(Submit());
        continue;
      }
      const int64_t n = std::min(tensor.run.count - next_first_, room / element);
      slot_->pieces.push_back({&tensor, next_first_, n, slot_->bytes});
      for (const StoredRun::Part& part : tensor.run.parts) {
        ZERO_RETURN_IF_ERROR(transfer_.CopyOut(stream, part.place, part.first + next_first_, n,
                                               slot_->memory + slot_->bytes));
        slot_->bytes += Aligned(n * BytesOf(part.place.stored));
      }
      next_first_ += n;
      // A disk is read here, however slow it is.
      if (transfer_.reads_disk() && std::chrono::steady_clock::now() - start > patience)
        return false;
    }
  }
  if (slot_ != nullptr) ZERO_RETURN_IF_ERROR(Submit());
  return true;
}

void CheckpointWriter::Write() {
  absl::Status status;
  for (int64_t next = 0;; ++next) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return filled_ > next || closed_ || cancelled_; });
      if (cancelled_) status = absl::CancelledError("the checkpoint was given up");
      if (!status.ok() || filled_ <= next) break;
    }
    const Slot& slot = slots_[static_cast<size_t>(next) % slots_.size()];
    status = WriteSlot(slot);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) {
      status_ = status;
    } else {
      ++emptied_;
    }
    changed_.notify_all();
    if (!status.ok()) break;
  }
  const int64_t bytes = file_->writer.bytes();
  std::vector<uint32_t> checksums;
  if (status.ok()) {
    absl::StatusOr<std::vector<uint32_t>> finished = file_->writer.Finish();
    status = finished.status();
    if (finished.ok()) checksums = *std::move(finished);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  status_ = status;
  written_.bytes = bytes;
  written_.checksums = std::move(checksums);
  done_ = true;
  changed_.notify_all();
}

absl::Status CheckpointWriter::WriteSlot(const Slot& slot) {
  ZERO_RETURN_IF_ERROR(slot.copied->Synchronize(2 * context_.group->deadline()));
  for (const Piece& piece : slot.pieces) ZERO_RETURN_IF_ERROR(WritePiece(slot, piece));
  return absl::OkStatus();
}

absl::Status CheckpointWriter::WritePiece(const Slot& slot, const Piece& piece) {
  const char* from = slot.memory + piece.offset;
  if (piece.tensor == nullptr) {
    std::memcpy(&written_.state, from, sizeof(StepState));
    return absl::OkStatus();
  }
  const CheckpointTensor& tensor = *piece.tensor;
  int64_t bytes = piece.count * SizeOf(tensor.dtype);
  if (tensor.run.parts.size() > 1) {
    file_->joined.resize(static_cast<size_t>(bytes));
    const absl::Span<float> values(reinterpret_cast<float*>(file_->joined.data()),
                                   static_cast<size_t>(piece.count));
    const StoredAs weights = tensor.run.parts[0].place.stored;
    Decode(from, weights, values);
    AddRemainders(reinterpret_cast<const uint16_t*>(from + Aligned(piece.count * BytesOf(weights))),
                  values);
    from = file_->joined.data();
  }
  if (tensor.weight && !force_) {
    const int64_t bad = FirstNonFinite(from, piece.count, tensor.dtype);
    if (bad < piece.count) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint is not written: '", tensor.parameter, "' is inf or NaN at element ",
          tensor.run.first + piece.first + bad, " (it would be with CheckpointOptions::force)"));
    }
  }
  ZERO_RETURN_IF_ERROR(file_->writer.Append({from, static_cast<size_t>(bytes)}));
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_written_ += bytes;
  return absl::OkStatus();
}

bool CheckpointWriter::Done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_;
}

void CheckpointWriter::Wait(std::chrono::nanoseconds patience) const {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return done_; });
}

int64_t CheckpointWriter::bytes_written() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_written_;
}

void CheckpointWriter::Cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

absl::StatusOr<CheckpointWriter::Written> CheckpointWriter::Take() {
  if (thread_.joinable()) thread_.join();
  file_.reset();
  tensors_.clear();
  // Copies into the slots that nobody waited for may still run.
  ZERO_RETURN_IF_ERROR(status_);
  return std::move(written_);
}

}  // namespace zero
