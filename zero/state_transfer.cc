#include "zero/state_transfer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/crc32c.h"
#include "zero/misuse.h"
#include "zero/nearest_name.h"

namespace zero {
namespace {

// Of Write, which fills one half of the staging memory while the other is copied.
constexpr int64_t kWriteElements = kTransferElements / 2;
// Of Write where it fills memory in place: long enough that a source reads most of it there.
constexpr int64_t kInPlaceElements = int64_t{1} << 22;

absl::Status UnknownParameter(const Model& model, const std::string& name) {
  std::vector<std::string> names;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) names.push_back(parameter.name);
  }
  return Misuse(absl::NotFoundError(absl::StrCat("no parameter '", name, "'; the nearest name is '",
                                                 NearestName(name, names), "'")));
}

// Of a record; none: weights.
std::optional<Section> SectionOf(State state) {
  switch (state) {
    case State::kGradient:
      return Section::kGradient;
    case State::kMaster:
      return Section::kMaster;
    case State::kMoment1:
      return Section::kMoment1;
    case State::kMoment2:
      return Section::kMoment2;
    case State::kWeight:
      break;
  }
  return std::nullopt;
}

bool HasName(const Parameter& parameter, const std::string& name) {
  return parameter.name == name || std::find(parameter.aliases.begin(), parameter.aliases.end(),
                                             name) != parameter.aliases.end();
}

}  // namespace

const char* Name(State state) {
  switch (state) {
    case State::kWeight:
      return "weight";
    case State::kGradient:
      return "gradient";
    case State::kMaster:
      return "master";
    case State::kMoment1:
      return "moment1";
    case State::kMoment2:
      return "moment2";
  }
  return "unknown";
}

absl::StatusOr<StateTransfer> StateTransfer::Create(const Context& context, WeightStore* weights,
                                                    GradientStore* gradients,
                                                    OptimizerStates* states,
                                                    const OffloadStore* offloaded) {
  StateTransfer transfer(&context, weights, gradients, states, offloaded);
  const int64_t bytes = kTransferElements * 4;
  ZERO_ASSIGN_OR_RETURN(transfer.device_staging_,
                        context.device->Allocate(bytes, MemoryCategory::kStaging, "state staging"));
  for (Buffer* buffer : {&transfer.host_values_, &transfer.host_raw_}) {
    ZERO_ASSIGN_OR_RETURN(*buffer, context.device->AllocateHost(bytes, MemoryCategory::kHostStaging,
                                                                "state staging of the host"));
  }
  for (int i = 0; i < 2; ++i) {
    StagingHalf& half = transfer.halves_[i];
    half.values = transfer.host_values_.as<float>() + i * kWriteElements;
    half.raw = transfer.host_raw_.bytes_at(i * kWriteElements * 4);
    ZERO_ASSIGN_OR_RETURN(half.copied, context.device->CreateEvent());
  }
  return transfer;
}

StatePlace StateTransfer::Find(State state, int unit, int s) const {
  const Config& config = context_->plan->config;
  const Segment& segment = context_->unit(unit).segments[s];
  const auto place = [&](const SegmentBlock& block, StoredAs stored, int64_t offloaded) {
    StatePlace found{unit, s, state, stored};
    found.device = block.at(unit, s);
    found.sliced = block.sliced();
    found.offloaded = offloaded;
    found.exists = found.device != nullptr || offloaded > 0;
    return found;
  };
  const int64_t states = OffloadedStateElements(config, segment);
  const int moments = context_->plan->moments;
  switch (state) {
    case State::kWeight: {
      const bool away =
          segment.dtype == DType::kBF16 && config.weight_rounding == WeightRounding::kNearestAway;
      return place(weights_->block(), away ? StoredAs::kBF16Away : StoredAsOf(segment.dtype),
                   OffloadedWeightElements(config, segment));
    }
    case State::kGradient:
      return place(gradients_->block(), StoredAsOf(StoredType(config, segment)),
                   context_->plan->offload.stores_gradients ? states : 0);
    case State::kMaster:
      // An fp32 weight is its own master; so is, for want of a better, one that has none.
      if (MasterBytes(config, segment) == 0) return Find(State::kWeight, unit, s);
      return place(states_->masters(),
                   config.master == MasterKind::kSplit ? StoredAs::kRemainder : StoredAs::kF32,
                   states);
    case State::kMoment1:
      return place(states_->moment1(), StoredAs::kF32, moments >= 1 ? states : 0);
    case State::kMoment2:
      return place(states_->moment2(), StoredAs::kF32, moments >= 2 ? states : 0);
  }
  return StatePlace();
}

std::vector<StatePlace> StateTransfer::PartsOf(State state, int unit, int s) const {
  const StatePlace place = Find(state, unit, s);
  if (place.stored != StoredAs::kRemainder) return {place};
  return {Find(State::kWeight, unit, s), place};
}

std::vector<StatePlace> StateTransfer::WrittenWith(State state, int unit, int s) const {
  if (state != State::kWeight && state != State::kMaster) return {Find(state, unit, s)};
  // What `state` itself is comes first.
  const State other = state == State::kWeight ? State::kMaster : State::kWeight;
  return {Find(state, unit, s), Find(other, unit, s)};
}

absl::Status StateTransfer::CopyOut(const Stream& stream, const StatePlace& place, int64_t first,
                                    int64_t n, char* to) const {
  const int64_t element = BytesOf(place.stored);
  const int64_t offloaded = std::clamp<int64_t>(place.offloaded - first, 0, n);
  if (offloaded > 0) {
    const std::optional<Section> section = SectionOf(place.state);
    ZERO_RETURN_IF_ERROR(
        offloaded_->Read(stream, place.unit, place.segment, section, first, offloaded, to));
  }
  if (offloaded == n) return absl::OkStatus();
  return context_->device->Copy(stream, to + offloaded * element,
                                place.device + (first + offloaded - place.offloaded) * element,
                                (n - offloaded) * element);
}

absl::Status StateTransfer::CopyIn(const Stream& stream, const StatePlace& place, int64_t first,
                                   int64_t n, const char* from) const {
  const int64_t element = BytesOf(place.stored);
  const int64_t offloaded = std::clamp<int64_t>(place.offloaded - first, 0, n);
  if (offloaded > 0) {
    const std::optional<Section> section = SectionOf(place.state);
    ZERO_RETURN_IF_ERROR(
        offloaded_->Write(stream, place.unit, place.segment, section, first, offloaded, from));
  }
  if (offloaded == n) return absl::OkStatus();
  return context_->device->Copy(stream,
                                place.device + (first + offloaded - place.offloaded) * element,
                                from + offloaded * element, (n - offloaded) * element);
}

absl::Status StateTransfer::Write(State state, const Source& source) {
  if (state == State::kGradient) {
    return absl::InvalidArgumentError(
        "Write: gradients come from passes; weights, masters and moments can be written");
  }
  const bool weights = state == State::kWeight || state == State::kMaster;
  if (weights) weights_->Forget();
  Begin();
  for (int u = 0; u < context_->units(); ++u) {
    const int parameters = static_cast<int>(context_->unit(u).parameters.size());
    const auto write = [&]() -> absl::Status {
      for (int p = 0; p < parameters; ++p) {
        ZERO_RETURN_IF_ERROR(WriteParameter(state, u, p, source));
      }
      return absl::OkStatus();
    };
    if (weights) {
      ZERO_RETURN_IF_ERROR(weights_->Write(u, *context_->arithmetic, write));
    } else {
      ZERO_RETURN_IF_ERROR(write());
    }
  }
  if (offloaded_ != nullptr) ZERO_RETURN_IF_ERROR(offloaded_->Flush());
  return context_->arithmetic->Synchronize();
}

void StateTransfer::Begin() const {
  if (offloaded_ != nullptr) offloaded_->Forget();
}

absl::Status StateTransfer::WriteParameter(State state, int unit, int p, const Source& source) {
  const Stream& stream = *context_->arithmetic;
  const Run& run = context_->unit(unit).parameters[p];
  const Segment& segment = context_->unit(unit).segments[run.segment];
  const Parameter& parameter = context_->model->units[unit].parameters[p];
  const int64_t own = context_->rank() * segment.slice;

  const std::vector<StatePlace> places = WrittenWith(state, unit, run.segment);
  const bool whole = std::any_of(places.begin(), places.end(), [](const StatePlace& place) {
    return place.exists && !place.sliced;
  });
  const int64_t from = whole ? run.first : std::max(run.first, own);
  const int64_t to =
      whole ? run.first + run.count : std::min(run.first + run.count, own + segment.slice);
  if (!places[0].exists) return absl::OkStatus();

  // Masters and moments are used on streams that have been waited for; weights may still be read on
  // the trainer's. On the host they are filled where they lie.
  const bool only_ours =
      state == State::kMoment1 || state == State::kMoment2 ||
      (state == State::kMaster && MasterBytes(context_->plan->config, segment) > 0);
  const StatePlace& target = places[0];
  const int64_t shift = target.sliced ? own : 0;
  const int64_t own_end = target.sliced ? std::min(to, own + segment.slice) : to;
  // Elements from `first` on that can be filled where they lie.
  const auto room = [&](int64_t first) -> int64_t {
    if (!only_ours || target.stored != StoredAs::kF32 || first < shift || first >= own_end)
      return 0;
    const int64_t offloaded = std::min(target.offloaded - (first - shift), own_end - first);
    if (offloaded > 0) {
      return offloaded_->FillsAtOnce(unit, run.segment, *SectionOf(target.state), first - shift,
                                     offloaded);
    }
    const bool there = target.offloaded == 0 && context_->device->kind() == DeviceKind::kHost;
    return there ? own_end - first : 0;
  };
  float* filled = nullptr;  // where elements [filled_first, filled_end) lie
  int64_t filled_first = from;
  int64_t filled_end = from;
  for (int64_t first = from; first < to; first += kWriteElements) {
    const int64_t n = std::min(kWriteElements, to - first);
    // While the device takes one half of the staging memory, the source fills the other.
    StagingHalf& half = halves_[next_half_];
    next_half_ = 1 - next_half_;
    if (half.copied->recorded()) {
      ZERO_RETURN_IF_ERROR(half.copied->Synchronize(2 * context_->group->deadline()));
    }
    if (first >= filled_end) {
      int64_t asked = std::min(room(first), kInPlaceElements);
      // As many pieces as there are; the last one of all may be shorter.
      if (first + asked < to) asked -= asked % kWriteElements;
      if (asked > 0) {
        filled_first = first;
        filled_end = first + asked;
        filled = reinterpret_cast<float*>(target.device) + (first - shift);
        if (target.offloaded > 0) {
          ZERO_ASSIGN_OR_RETURN(
              filled,
              offloaded_->Fill(unit, run.segment, *SectionOf(target.state), first - shift, asked));
        }
        ZERO_RETURN_IF_ERROR(source(parameter, first - run.first, absl::MakeSpan(filled, asked)));
      }
    }
    const bool fills = first < filled_end;
    float* const values = fills ? filled + (first - filled_first) : half.values;
    if (!fills) {
      ZERO_RETURN_IF_ERROR(source(parameter, first - run.first, absl::MakeSpan(values, n)));
    }
    char* raw = half.raw;
    for (const StatePlace& place : places) {
      if (fills && &place == &target) continue;
      const int64_t begin = place.sliced ? std::max(first, own) : first;
      const int64_t end = place.sliced ? std::min(first + n, own + segment.slice) : first + n;
      if (!place.exists || begin >= end) continue;
      const absl::Span<float> written(values + (begin - first), static_cast<size_t>(end - begin));
      const int64_t element = BytesOf(place.stored);
      const char* encoded = reinterpret_cast<const char*>(written.data());
      if (place.stored != StoredAs::kF32) {
        Encode(written, place.stored, raw);
        encoded = raw;
        // A weight's master is the weight as it was rounded.
        if (state == State::kWeight && &place == &places[0]) Decode(raw, place.stored, written);
        raw += (end - begin) * element;
      }
      ZERO_RETURN_IF_ERROR(
          CopyIn(stream, place, begin - (place.sliced ? own : 0), end - begin, encoded));
    }
    ZERO_RETURN_IF_ERROR(half.copied->Record(stream));
  }
  return absl::OkStatus();
}

absl::Span<const float> StateTransfer::DecodeRaw(absl::Span<const StoredAs> parts, int64_t n) {
  const absl::Span<float> values(host_values_.as<float>(), static_cast<size_t>(n));
  Decode(host_raw_.data(), parts[0], values);
  if (parts.size() > 1) {
    const char* const remainders = host_raw_.bytes_at(n * BytesOf(parts[0]));
    AddRemainders(reinterpret_cast<const uint16_t*>(remainders), values);
  }
  return values;
}

absl::Status StateTransfer::Read(State state, const Stream& stream, const Sink& sink) {
  Begin();
  for (int u = 0; u < context_->units(); ++u) {
    const int parameters = static_cast<int>(context_->unit(u).parameters.size());
    for (int p = 0; p < parameters; ++p) {
      ZERO_RETURN_IF_ERROR(ReadParameter(state, u, p, stream, sink));
    }
  }
  return absl::OkStatus();
}

StoredRun StateTransfer::Owned(State state, int unit, int p) const {
  const Run& run = context_->unit(unit).parameters[p];
  const Segment& segment = context_->unit(unit).segments[run.segment];
  StoredRun owned;
  owned.unit = unit;
  owned.parameter = p;
  const std::vector<StatePlace> parts = PartsOf(state, unit, run.segment);
  if (!parts[0].exists) return owned;
  const int64_t own = context_->rank() * segment.slice;
  const int64_t from = std::max(run.first, own);
  const int64_t to = std::min(run.first + run.count, own + segment.slice);
  if (from >= to) return owned;
  owned.first = from - run.first;
  owned.count = to - from;
  for (const StatePlace& part : parts) {
    owned.parts.push_back({part, from - (part.sliced ? own : 0)});
  }
  return owned;
}

absl::StatusOr<uint32_t> StateTransfer::ChecksumOfWholeWeights(uint32_t crc) {
  if (weights_->block().sliced()) return crc;
  for (int u = 0; u < context_->units(); ++u) {
    const UnitLayout& unit = context_->unit(u);
    for (int s = 0; s < static_cast<int>(unit.segments.size()); ++s) {
      const Segment& segment = unit.segments[s];
      const int64_t bytes = segment.elements * SizeOf(segment.dtype);
      for (int64_t done = 0; done < bytes; done += host_raw_.bytes()) {
        const int64_t n = std::min(host_raw_.bytes(), bytes - done);
        const Stream& stream = *context_->arithmetic;
        ZERO_RETURN_IF_ERROR(
            context_->device->Copy(stream, host_raw_.data(), weights_->block().at(u, s) + done, n));
        ZERO_RETURN_IF_ERROR(stream.Synchronize());
        crc = Crc32c(crc, {host_raw_.bytes_at(0), static_cast<size_t>(n)});
      }
    }
  }
  return crc;
}

absl::Status StateTransfer::ReadParameter(State state, int unit, int p, const Stream& stream,
                                          const Sink& sink) {
  const StoredRun owned = Owned(state, unit, p);
  for (int64_t done = 0; done < owned.count; done += kTransferElements) {
    const int64_t n = std::min(kTransferElements, owned.count - done);
    std::vector<StoredAs> stored;
    int64_t taken = 0;
    for (const StoredRun::Part& part : owned.parts) {
      ZERO_RETURN_IF_ERROR(
          CopyOut(stream, part.place, part.first + done, n, host_raw_.bytes_at(taken)));
      taken += n * BytesOf(part.place.stored);
      stored.push_back(part.place.stored);
    }
    ZERO_RETURN_IF_ERROR(stream.Synchronize());
    const absl::Span<const float> values = DecodeRaw(stored, n);
    ZERO_RETURN_IF_ERROR(
        sink(context_->model->units[unit].parameters[p], owned.first + done, values));
  }
  return absl::OkStatus();
}

absl::Status StateTransfer::Gather(State state, const std::string& name, absl::Span<float> out) {
  Begin();
  for (int u = 0; u < context_->units(); ++u) {
    const std::vector<Parameter>& parameters = context_->model->units[u].parameters;
    for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
      if (!HasName(parameters[p], name)) continue;
      const int64_t count = context_->unit(u).parameters[p].count;
      if (static_cast<int64_t>(out.size()) != count) {
        return Misuse(
            absl::InvalidArgumentError(absl::StrCat("Gather of '", name, "': the parameter has ",
                                                    count, " elements, out has ", out.size())));
      }
      return GatherParameter(state, u, p, out);
    }
  }
  return UnknownParameter(*context_->model, name);
}

absl::Status StateTransfer::GatherPlace(const char* name, const StatePlace& place, int64_t column,
                                        int64_t n, int64_t slice, char* to) const {
  const Stream& stream = *context_->communication;
  const int64_t bytes = n * BytesOf(place.stored);
  const int64_t first = (place.sliced ? 0 : context_->rank() * slice) + column;
  char* const own = to + context_->rank() * bytes;
  const char* from = own;
  if (place.offloaded == 0) from = place.device + first * BytesOf(place.stored);
  if (place.offloaded > 0) {
    ZERO_RETURN_IF_ERROR(CopyOut(stream, place, first, n, host_raw_.bytes_at(0)));
    ZERO_RETURN_IF_ERROR(context_->device->Copy(stream, own, host_raw_.data(), bytes));
  }
  const AllGatherPiece piece{from, to, bytes, bytes};
  ZERO_RETURN_IF_ERROR(context_->group->AllGather(stream, name, {&piece, 1}));
  // The memory of the host is the next place's, which a disk may fill at once.
  return place.offloaded > 0 ? stream.Synchronize() : absl::OkStatus();
}

absl::Status StateTransfer::GatherParameter(State state, int unit, int p, absl::Span<float> out) {
  const Run& run = context_->unit(unit).parameters[p];
  const Segment& segment = context_->unit(unit).segments[run.segment];
  const std::vector<StatePlace> parts = PartsOf(state, unit, run.segment);
  const std::string& name = context_->model->units[unit].parameters[p].name;
  if (!parts[0].exists && run.count > 0) {
    return Misuse(absl::NotFoundError(absl::StrCat("parameter '", name, "' has no ", Name(state))));
  }
  if (run.count == 0) return absl::OkStatus();

  // Columns of the slices that the parameter touches: of one slice, or all of them.
  const int64_t first_rank = run.first / segment.slice;
  const int64_t last_rank = (run.first + run.count - 1) / segment.slice;
  const bool one = first_rank == last_rank;
  const int64_t begin = one ? run.first - first_rank * segment.slice : 0;
  const int64_t end = one ? begin + run.count : segment.slice;
  const int ranks = context_->group->size();
  const Stream& stream = *context_->communication;
  const int64_t columns = std::max<int64_t>(kTransferElements / ranks, 1);
  for (int64_t column = begin; column < end; column += columns) {
    const int64_t n = std::min(columns, end - column);
    std::vector<StoredAs> stored;
    int64_t received = 0;
    for (const StatePlace& part : parts) {
      ZERO_RETURN_IF_ERROR(GatherPlace(kStateTransfer, part, column, n, segment.slice,
                                       device_staging_.bytes_at(received)));
      stored.push_back(part.stored);
      received += ranks * n * BytesOf(part.stored);
    }
    ZERO_RETURN_IF_ERROR(
        context_->device->Copy(stream, host_raw_.data(), device_staging_.data(), received));
    ZERO_RETURN_IF_ERROR(stream.Synchronize());
    const absl::Span<const float> all = DecodeRaw(stored, ranks * n);
    const float* const values = all.data();
    for (int r = 0; r < ranks; ++r) {
      const int64_t at = r * segment.slice + column;
      const int64_t from = std::max(at, run.first);
      const int64_t to = std::min(at + n, run.first + run.count);
      if (from >= to) continue;
      std::copy(values + r * n + (from - at), values + r * n + (to - at),
                out.begin() + (from - run.first));
    }
  }
  return absl::OkStatus();
}

}  // namespace zero
