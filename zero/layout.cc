#include "zero/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Trainable before frozen, 16-bit before fp32.
int SortKey(const Parameter& parameter) {
  return (parameter.trainable ? 0 : 2) + (parameter.dtype == DType::kF32 ? 1 : 0);
}

absl::Status CheckName(const std::string& unit, const std::string& name,
                       std::set<std::string>& names) {
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unit '", unit, "': a parameter has no name"));
  }
  if (!names.insert(name).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit '", unit, "': the name '", name, "' is used twice"));
  }
  return absl::OkStatus();
}

absl::Status CheckParameter(const std::string& unit, const Parameter& parameter,
                            std::set<std::string>& names) {
  ZERO_RETURN_IF_ERROR(CheckName(unit, parameter.name, names));
  for (const std::string& alias : parameter.aliases) {
    ZERO_RETURN_IF_ERROR(CheckName(unit, alias, names));
  }
  if (ElementCount(parameter) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name,
                     "': a dimension is negative, or the shape has more than 2^56 elements"));
  }
  return absl::OkStatus();
}

UnitLayout LayOutUnit(const Unit& unit, int world_size) {
  UnitLayout layout;
  layout.parameters.resize(unit.parameters.size());
  for (int key = 0; key < 4; ++key) {
    Segment segment;
    const int index = static_cast<int>(layout.segments.size());
    int64_t end = 0;  // of the last parameter
    bool used = false;
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const Parameter& parameter = unit.parameters[p];
      if (SortKey(parameter) != key) continue;
      used = true;
      segment.dtype = parameter.dtype;
      segment.trainable = parameter.trainable;
      const int64_t first = RoundUp(end, kParameterAlignment);
      if (first > end) layout.gaps.push_back({index, end, first - end});
      layout.parameters[p] = {index, first, ElementCount(parameter)};
      end = first + layout.parameters[p].count;
    }
    if (!used) continue;
    segment.elements = RoundUp(end, world_size * kSliceAlignment);
    segment.slice = segment.elements / world_size;
    if (segment.elements > end) layout.gaps.push_back({index, end, segment.elements - end});
    layout.segments.push_back(segment);
  }
  return layout;
}

int64_t CountElements(const Layout& layout, bool trainable) {
  int64_t elements = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const Segment& segment : unit.segments) {
      if (segment.trainable == trainable) elements += segment.elements;
    }
  }
  return elements;
}

}  // namespace

bool UnitLayout::trainable() const {
  return std::any_of(segments.begin(), segments.end(),
                     [](const Segment& segment) { return segment.trainable; });
}

int64_t UnitLayout::weight_bytes() const {
  int64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.elements * SizeOf(segment.dtype);
  return bytes;
}

int64_t UnitLayout::written_bytes() const {
  int64_t bytes = 0;
  for (const Segment& segment : segments) {
    if (segment.trainable) bytes += segment.elements * SizeOf(segment.dtype);
  }
  return bytes;
}

int64_t Layout::trainable_elements() const { return CountElements(*this, true); }
int64_t Layout::frozen_elements() const { return CountElements(*this, false); }

absl::StatusOr<Layout> MakeLayout(const Model& model, int world_size) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("world size ", world_size, ": at least one rank is needed"));
  }
  if (model.units.empty()) return absl::InvalidArgumentError("the model has no units");
  std::set<std::string> unit_names;
  std::set<std::string> names;
  Layout layout;
  layout.world_size = world_size;
  for (const Unit& unit : model.units) {
    if (!unit_names.insert(unit.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the unit name '", unit.name, "' is used twice"));
    }
    for (const Parameter& parameter : unit.parameters) {
      ZERO_RETURN_IF_ERROR(CheckParameter(unit.name, parameter, names));
    }
    layout.units.push_back(LayOutUnit(unit, world_size));
  }
  return layout;
}

BlockLayout MakeBlockLayout(const Layout& layout, bool sliced,
                            const std::function<int64_t(const Segment&, int64_t n)>& bytes_of) {
  BlockLayout block;
  block.sliced = sliced;
  for (const UnitLayout& unit : layout.units) {
    std::vector<int64_t>& offsets = block.offsets.emplace_back();
    for (const Segment& segment : unit.segments) {
      const int64_t bytes = bytes_of(segment, sliced ? segment.slice : segment.elements);
      offsets.push_back(bytes > 0 ? block.bytes : -1);
      block.bytes += RoundUp(bytes, 64);
    }
  }
  return block;
}

}  // namespace zero
