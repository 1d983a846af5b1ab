#include "bench/record_states.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/array.h"
#include "bench/stage_rank.h"
#include "device/status.h"
#include "kernels/adam_math.h"
#include "kernels/bfloat16_math.h"
#include "kernels/split_math.h"
#include "zero/update_range.h"

namespace zero::bench {
namespace {

constexpr float kBeta1 = 0.9f;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;

// What an element is before the first update.
struct Initial {
  explicit Initial(int64_t i)
      : gradient(Value(1, i)), master(Value(2, i)), moment1(Value(3, i)), moment2(Value(4, i)) {
    moment2 *= moment2;
  }
  float gradient, master, moment1, moment2;
};

AdamArguments Formula() {
  AdamArguments a;
  a.beta2 = static_cast<float>(kBeta2);
  a.one_minus_beta2 = static_cast<float>(1 - kBeta2);
  a.epsilon = static_cast<float>(kEpsilon);
  return a;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStates>> RecordStates::Create(Device* device,
                                                                   MasterKind master,
                                                                   DType gradients,
                                                                   int64_t elements) {
  Config config;
  config.beta1 = kBeta1;
  config.beta2 = kBeta2;
  config.epsilon = kEpsilon;
  config.master = master;
  config.accumulation = gradients;
  if (master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
  config.offload.optimizer = Place::kHost;
  config.offload.parameters = Place::kHost;
  std::unique_ptr<RecordStates> states(new RecordStates);
  ZERO_RETURN_IF_ERROR(states->Allocate(device, config, elements));
  return states;
}

absl::Status RecordStates::Allocate(Device* device, const Config& config, int64_t elements) {
  model_ = StageModel{1, elements, DType::kBF16}.Make();
  ZERO_ASSIGN_OR_RETURN(plan_, MakePlan(config, model_, 1));
  context_.plan = &plan_;
  context_.model = &model_;
  const auto allocate = [device](Buffer& buffer, int64_t bytes) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(buffer, device->AllocateHost(bytes, MemoryCategory::kHostStates,
                                                       "states of the benchmark"));
    std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
    return absl::OkStatus();
  };
  ZERO_RETURN_IF_ERROR(allocate(records_, plan_.offload.record_bytes));
  ZERO_RETURN_IF_ERROR(allocate(weights_, plan_.offload.weight_bytes));
  ZERO_RETURN_IF_ERROR(allocate(groups_, plan_.offload.group_map_bytes));
  scalars_.apply = 1;
  scalars_.divisor = 8;
  scalars_.clip_coefficient = 0.75f;
  scalars_.sqrt_bias_correction2 = 0.5f;
  scalars_.beta1 = kBeta1;
  scalars_.one_minus_beta1 = static_cast<float>(1 - 0.9);
  row_.learning_rate = 1e-5f;
  row_.step_size = 2e-5f;
  row_.keep = 0.9999f;
  FillFirst();
  const OffloadPiece& first = pieces().front();
  for (const OffloadPiece& piece : pieces()) {
    if (piece.record == first.record) continue;
    const RecordLayout layout = MakeRecordLayout(config, segment(), plan_.moments, piece.count);
    for (int s = 0; s < kSections; ++s) {
      const auto bytes = static_cast<size_t>(layout.offsets[s + 1] - layout.offsets[s]);
      std::memcpy(At(piece, Section(s)), At(first, Section(s)), bytes);
    }
    std::memcpy(WeightsAt(piece), WeightsAt(first), static_cast<size_t>(piece.count) * 2);
  }
  return absl::OkStatus();
}

char* RecordStates::At(const OffloadPiece& piece, Section section) const {
  return records_.bytes_at(piece.record) +
         MakeRecordLayout(plan_.config, segment(), plan_.moments, piece.count).at(section);
}

uint16_t* RecordStates::WeightsAt(const OffloadPiece& piece) const {
  return weights_.as<uint16_t>() + piece.first;
}

void RecordStates::FillFirst() const {
  const OffloadPiece& first = pieces().front();
  char* const gradients = At(first, Section::kGradient);
  char* const masters = At(first, Section::kMaster);
  for (int64_t i = 0; i < first.count; ++i) {
    const Initial initial(i);
    if (plan_.config.accumulation == DType::kF32) {
      reinterpret_cast<float*>(gradients)[i] = initial.gradient;
    } else {
      reinterpret_cast<BFloat16*>(gradients)[i] = ToBFloat16(initial.gradient);
    }
    if (plan_.config.master == MasterKind::kF32) {
      reinterpret_cast<float*>(masters)[i] = initial.master;
      WeightsAt(first)[i] = ToBFloat16(initial.master).bits;
    } else {
      const SplitFloat split = SplitMath(initial.master);
      reinterpret_cast<uint16_t*>(masters)[i] = split.remainder;
      WeightsAt(first)[i] = split.weight.bits;
    }
    reinterpret_cast<float*>(At(first, Section::kMoment1))[i] = initial.moment1;
    reinterpret_cast<float*>(At(first, Section::kMoment2))[i] = initial.moment2;
  }
}

absl::Status RecordStates::EnqueueUpdate(const Stream& stream) const {
  for (const OffloadPiece& piece : pieces()) {
    UpdateMemory memory;
    memory.gradient = At(piece, Section::kGradient);
    memory.weight = WeightsAt(piece);
    memory.master = At(piece, Section::kMaster);
    memory.moment1 = reinterpret_cast<float*>(At(piece, Section::kMoment1));
    memory.moment2 = reinterpret_cast<float*>(At(piece, Section::kMoment2));
    memory.groups = groups_.as<uint8_t>() + piece.first / kParameterAlignment;
    memory.scalars = &scalars_;
    memory.rows = &row_;
    ZERO_RETURN_IF_ERROR(
        zero::EnqueueUpdate(stream, context_, 0, piece.segment, piece.first, piece.count, memory));
  }
  return absl::OkStatus();
}

absl::Status RecordStates::VerifyFirst() const {
  const OffloadPiece& first = pieces().front();
  const bool split = plan_.config.master == MasterKind::kSplit;
  const char* const masters = At(first, Section::kMaster);
  const float* const moments1 = reinterpret_cast<const float*>(At(first, Section::kMoment1));
  const float* const moments2 = reinterpret_cast<const float*>(At(first, Section::kMoment2));
  for (int64_t i = 0; i < first.count; ++i) {
    Initial wanted(i);
    if (plan_.config.accumulation == DType::kBF16) {
      wanted.gradient = ToFloat(ToBFloat16(wanted.gradient));
    }
    AdamMath(Formula(), scalars_, row_, wanted.gradient, &wanted.master, &wanted.moment1,
             &wanted.moment2);
    const BFloat16 weight = split ? ToBFloat16Away(wanted.master) : ToBFloat16(wanted.master);
    const float master =
        split ? JoinMath({{WeightsAt(first)[i]}, reinterpret_cast<const uint16_t*>(masters)[i]})
              : reinterpret_cast<const float*>(masters)[i];
    const bool same = weight.bits == WeightsAt(first)[i] &&
                      BitsOf(master) == BitsOf(wanted.master) &&
                      BitsOf(moments1[i]) == BitsOf(wanted.moment1) &&
                      BitsOf(moments2[i]) == BitsOf(wanted.moment2);
    if (!same) return absl::InternalError(absl::StrCat("the update of element ", i, " is wrong"));
  }
  return absl::OkStatus();
}

bool RecordStates::SameAsFirst(const OffloadPiece& piece) const {
  const OffloadPiece& first = pieces().front();
  const auto n = static_cast<size_t>(piece.count);
  const auto master = static_cast<size_t>(MasterBytes(plan_.config, segment()));
  const auto same = [&](Section section, size_t element) {
    return std::memcmp(At(piece, section), At(first, section), n * element) == 0;
  };
  return same(Section::kMaster, master) && same(Section::kMoment1, 4) &&
         same(Section::kMoment2, 4) && std::memcmp(WeightsAt(piece), WeightsAt(first), n * 2) == 0;
}

absl::Status RecordStates::Verify(const Stream& stream) const {
  ZERO_RETURN_IF_ERROR(EnqueueUpdate(stream));
  ZERO_RETURN_IF_ERROR(stream.Synchronize());
  ZERO_RETURN_IF_ERROR(VerifyFirst());
  for (const OffloadPiece& piece : pieces()) {
    if (SameAsFirst(piece)) continue;
    return absl::InternalError(absl::StrCat("the update of elements ", piece.first, " to ",
                                            piece.first + piece.count - 1, " is wrong"));
  }
  return absl::OkStatus();
}

double RecordStates::bytes_per_parameter() const {
  const auto gradient = static_cast<double>(SizeOf(StoredType(plan_.config, segment())));
  const auto master = static_cast<double>(MasterBytes(plan_.config, segment()));
  // The weight is written; where it is a part of the master it is read too.
  const double weight = plan_.config.master == MasterKind::kSplit ? 2 * 2 : 2;
  return gradient + 2 * master + 2 * 2 * 4 + weight;
}

}  // namespace zero::bench
