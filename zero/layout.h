// Where each parameter lies: one flat layout that every stage shares.
//
// A unit's parameters are sorted into segments by (trainable, dtype) and lie back to back in
// registration order, each start aligned to 64 elements; a segment's end is padded to a multiple of
// world_size x 128 elements. Rank r owns the r-th equal slice. Nothing here depends on the stage,
// so that the state of one stage loads into another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/dtype.h"
#include "zero/model.h"

namespace zero {

inline constexpr int64_t kParameterAlignment =
    64;                                          // elements; one parameter-group byte covers them
inline constexpr int64_t kSliceAlignment = 128;  // elements

struct Segment {
  DType dtype = DType::kF32;
  bool trainable = true;
  int64_t elements = 0;  // with gaps and padding
  int64_t slice = 0;     // elements / world size
};

// A run of elements of a segment.
struct Run {
  int segment = 0;
  int64_t first = 0;
  int64_t count = 0;
};

struct UnitLayout {
  std::vector<Segment> segments;
  std::vector<Run> parameters;  // by parameter
  std::vector<Run> gaps;        // what no parameter covers, padding included

  bool trainable() const;  // has a trainable segment
  int64_t weight_bytes() const;
  int64_t written_bytes() const;  // of one micro-batch's gradients
};

struct Layout {
  int world_size = 1;
  std::vector<UnitLayout> units;

  int64_t trainable_elements() const;  // with padding: T
  int64_t frozen_elements() const;     // F
};

// kInvalidArgument names the unit or parameter: no units, a name used twice (aliases included), a
// negative or overflowing shape, world_size < 1.
absl::StatusOr<Layout> MakeLayout(const Model& model, int world_size);

// One value (or byte) per element of the segments that pass a filter, for whole segments or for
// this rank's slices, as byte offsets into one allocation. Each start is 64-byte aligned.
struct BlockLayout {
  bool sliced = false;
  std::vector<std::vector<int64_t>> offsets;  // [unit][segment], -1 where the filter says no
  int64_t bytes = 0;
};
// `element_bytes`: bytes of n elements of a segment; 0 leaves the segment out.
BlockLayout MakeBlockLayout(const Layout& layout, bool sliced,
                            const std::function<int64_t(const Segment&, int64_t n)>& bytes_of);

}  // namespace zero
