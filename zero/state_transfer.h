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
#include "zero/optimizer_states.h"
#include "zero/sharded_optimizer.h"
#include "zero/stored_as.h"
#include "zero/weight_store.h"

namespace zero {

// Elements of a parameter's state that lie in one run of this rank's memory.
struct StoredRun {
  int unit = 0;
  int parameter = 0;
  int64_t first = 0;  // within the parameter
  int64_t count = 0;
  // What the values are made of: masters that are split are two.
  struct Part {
    const char* data = nullptr;  // device memory
    StoredAs stored = StoredAs::kF32;
  };
  std::vector<Part> parts;
};

// Moves kTransferElements at a time through staging memory that is allocated once.
class StateTransfer {
 public:
  static absl::StatusOr<StateTransfer> Create(const Context& context, WeightStore* weights,
                                              GradientStore* gradients, OptimizerStates* states);

  // See ShardedOptimizer.
  absl::Status Write(State state, const Source& source);
  absl::Status Read(State state, const Stream& stream, const Sink& sink);
  absl::Status Gather(State state, const std::string& name, absl::Span<float> out);

  // What this rank owns of a parameter's state, as it lies on the device: its slice; count 0 where
  // it owns nothing, or there is no such state. Masters of what has none are the weights.
  StoredRun Owned(State state, int unit, int parameter) const;
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
  // Where one segment's elements of a state lie.
  struct Place {
    char* data = nullptr;  // null: this parameter has no such state
    StoredAs stored = StoredAs::kF32;
    bool sliced = false;  // data is this rank's slice
  };
  // How a segment's elements become those of a file.
  struct FileFormat {
    std::vector<Place> parts;
    std::optional<DType> rounded;  // to this; empty: the bytes as they are
    int64_t columns = 0;           // elements that fit the staging memory
  };
  StateTransfer(const Context* context, WeightStore* weights, GradientStore* gradients,
                OptimizerStates* states)
      : context_(context), weights_(weights), gradients_(gradients), states_(states) {}

  Place Find(State state, int unit, int segment) const;
  // What the values of a state are made of: masters that are split are two.
  std::vector<Place> PartsOf(State state, int unit, int segment) const;
  // Everything that follows from the values of a state: itself, and what must agree with it.
  std::vector<Place> WrittenWith(State state, int unit, int segment) const;
  absl::Status WriteParameter(State state, int unit, int parameter, const Source& source);
  absl::Status ReadParameter(State state, int unit, int parameter, const Stream& stream,
                             const Sink& sink);
  absl::Status GatherParameter(State state, int unit, int parameter, absl::Span<float> out);
  FileFormat FormatOf(int unit, int segment, std::optional<DType> dtype) const;
  // Elements [at, at + n) of a segment; raw[k]: those of part k, on the host.
  absl::Status Emit(int unit, int segment, const FileFormat& format, int64_t at, int64_t n,
                    absl::Span<const char* const> raw, const ByteSink& sink);
  // Device to host, as fp32 in staging: n elements. Waits.
  absl::StatusOr<absl::Span<const float>> Fetch(const Stream& stream,
                                                absl::Span<const StoredRun::Part> parts, int64_t n);

  const Context* context_;
  WeightStore* weights_;
  GradientStore* gradients_;
  OptimizerStates* states_;
  Buffer device_staging_;  // [kTransferElements] of up to 4 bytes
  Buffer host_values_;     // fp32, likewise
  Buffer host_raw_;        // as stored, likewise
  struct StagingHalf {
    float* values = nullptr;
    char* raw = nullptr;
    std::unique_ptr<Event> copied;  // what was last written from it
  };
  std::array<StagingHalf, 2> halves_;
  size_t next_half_ = 0;
};

}  // namespace zero
