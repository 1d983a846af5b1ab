// State in and out of the device, in logical coordinates (parameter, first element).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/offload/offload_store.h"
#include "zero/optimizer_states.h"
#include "zero/sharded_optimizer.h"
#include "zero/stored_as.h"
#include "zero/weight_store.h"

namespace zero {

// Where a rank has elements of one state of a segment: of its slice, or of all of it. The first
// elements of a slice may be offloaded.
struct StatePlace {
  int unit = 0;
  int segment = 0;
  State state = State::kWeight;
  StoredAs stored = StoredAs::kF32;
  bool exists = false;
  bool sliced = false;     // elements are counted within this rank's slice
  int64_t offloaded = 0;   // the first so many
  char* device = nullptr;  // memory of the element after them
};

// Elements of a parameter's state that this rank owns, one after the other in a segment.
struct StoredRun {
  int unit = 0;
  int parameter = 0;
  int64_t first = 0;  // within the parameter
  int64_t count = 0;
  // What the values are made of: masters that are split are two.
  struct Part {
    StatePlace place;
    int64_t first = 0;  // element of the place
  };
  std::vector<Part> parts;
};

// Moves kTransferElements at a time through staging memory that is allocated once.
class StateTransfer {
 public:
  static absl::StatusOr<StateTransfer> Create(const Context& context, WeightStore* weights,
                                              GradientStore* gradients, OptimizerStates* states,
                                              const OffloadStore* offloaded);

  // See ShardedOptimizer.
  absl::Status Write(State state, const Source& source);
  absl::Status Read(State state, const Stream& stream, const Sink& sink);
  absl::Status Gather(State state, const std::string& name, absl::Span<float> out);

  // What this rank owns of a parameter's state, as it lies on the device: its slice; count 0 where
  // it owns nothing, or there is no such state. Masters of what has none are the weights.
  StoredRun Owned(State state, int unit, int parameter) const;
  // Before the first of several calls of what follows, once what was enqueued for a disk has run:
  // what is read ahead must be of now.
  void Begin() const;
  // Elements [first, first + n) of a place to memory of the host: enqueued on `stream`, which comes
  // after what was enqueued elsewhere for them; but what is on a disk is there when the call
  // returns, and what comes after it is being read.
  absl::Status CopyOut(const Stream& stream, const StatePlace& place, int64_t first, int64_t n,
                       char* to) const;
  // Whether CopyOut reads a disk, whose streams must have drained.
  bool reads_disk() const { return offloaded_ != nullptr && offloaded_->file() != nullptr; }

  // CRC32C of `crc` and all weights that every rank has whole; `crc` where they are sliced. Waits.
  absl::StatusOr<uint32_t> ChecksumOfWholeWeights(uint32_t crc);
  // Two buffers of the host of kTransferElements x 4 bytes; free between calls of the above.
  std::vector<char*> host_staging() const {
    return {host_values_.bytes_at(0), host_raw_.bytes_at(0)};
  }
  // A run of the elements of one of a unit's parameters, from `first` on, as a file holds them.
  using ByteSink =
      std::function<absl::Status(int parameter, int64_t first, absl::Span<const char> bytes)>;
  // Gives `sink` what this rank owns of a unit, as SaveWeightsOptions::dtype says. The first error
  // of `sink` ends it, marked as Misuse; so does a finite value that becomes inf.
  absl::Status ReadBytes(int unit, std::optional<DType> dtype, const ByteSink& sink);
  // [collective] The same of what all ranks own. A sink that fails is not called again, and its
  // error comes when all ranks are through. An empty one: nothing is wanted on this rank.
  absl::Status GatherBytes(int unit, std::optional<DType> dtype, const ByteSink& sink);

 private:
  // How a segment's elements become those of a file.
  struct FileFormat {
    std::vector<StatePlace> parts;
    std::optional<DType> rounded;  // to this; empty: the bytes as they are
    int64_t columns = 0;           // elements that fit the staging memory
  };
  StateTransfer(const Context* context, WeightStore* weights, GradientStore* gradients,
                OptimizerStates* states, const OffloadStore* offloaded)
      : context_(context),
        weights_(weights),
        gradients_(gradients),
        states_(states),
        offloaded_(offloaded) {}

  absl::Status CopyIn(const Stream& stream, const StatePlace& place, int64_t first, int64_t n,
                      const char* from) const;
  // This rank's elements of a place, as CopyOut, and those of all ranks, by rank, at `to`, on the
  // device. The memory between is that of the host.
  absl::Status GatherPlace(const char* name, const StatePlace& place, int64_t column, int64_t n,
                           int64_t slice, char* to) const;
  StatePlace Find(State state, int unit, int segment) const;
  // What the values of a state are made of: masters that are split are two.
  std::vector<StatePlace> PartsOf(State state, int unit, int segment) const;
  // Everything that follows from the values of a state: itself, and what must agree with it.
  std::vector<StatePlace> WrittenWith(State state, int unit, int segment) const;
  absl::Status WriteParameter(State state, int unit, int parameter, const Source& source);
  absl::Status ReadParameter(State state, int unit, int parameter, const Stream& stream,
                             const Sink& sink);
  absl::Status GatherParameter(State state, int unit, int parameter, absl::Span<float> out);
  FileFormat FormatOf(int unit, int segment, std::optional<DType> dtype) const;
  // Elements [at, at + n) of a segment; raw[k]: those of part k, on the host.
  absl::Status Emit(int unit, int segment, const FileFormat& format, int64_t at, int64_t n,
                    absl::Span<const char* const> raw, const ByteSink& sink);
  // What lies in host_raw_, part after part, as fp32 in staging: n elements.
  absl::Span<const float> DecodeRaw(absl::Span<const StoredAs> parts, int64_t n);

  const Context* context_;
  WeightStore* weights_;
  GradientStore* gradients_;
  OptimizerStates* states_;
  const OffloadStore* offloaded_;  // null: nothing is offloaded
  Buffer device_staging_;          // [kTransferElements] of up to 4 bytes
  Buffer host_values_;             // fp32, likewise
  Buffer host_raw_;                // as stored, likewise
  struct StagingHalf {
    float* values = nullptr;
    char* raw = nullptr;
    std::unique_ptr<Event> copied;  // what was last written from it
  };
  std::array<StagingHalf, 2> halves_;
  size_t next_half_ = 0;
};

}  // namespace zero
