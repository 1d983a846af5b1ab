#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "zero/deepspeed_sections.h"

namespace zero {
namespace {

constexpr char kTrain[] = "train_batch_size";
constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";
constexpr int64_t kMost = 1'000'000'000;

// At most the largest int64_t.
int64_t Product(int64_t a, int64_t b, int64_t c) {
  int64_t product = 0;
  const bool over =
      __builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product);
  return over ? std::numeric_limits<int64_t>::max() : product;
}

std::string Shown(const std::optional<int64_t>& size) {
  return size.has_value() ? absl::StrCat(*size) : "not given";
}

}  // namespace

std::string CompleteBatchSizes(BatchSizes& sizes, int64_t ranks) {
  // Sets `missing` = train / (known x ranks).
  const auto divide = [&](std::optional<int64_t>& missing, int64_t known) -> std::string {
    const int64_t divisor = Product(known, ranks, 1);
    if (*sizes.train % divisor != 0) {
      return absl::StrCat(*sizes.train, " is no multiple of ", known, " x ", ranks);
    }
    missing = *sizes.train / divisor;
    return "";
  };
  if (!sizes.train.has_value() && !sizes.micro.has_value()) {
    return absl::StrCat("one of ", kTrain, " and ", kMicro, " is needed");
  }
  if (!sizes.train.has_value() || !sizes.micro.has_value()) {
    if (!sizes.accumulation.has_value()) sizes.accumulation = 1;
  }
  if (!sizes.train.has_value()) {
    sizes.train = Product(*sizes.micro, *sizes.accumulation, ranks);
    return *sizes.train <= kMost ? "" : absl::StrCat("their product is more than ", kMost);
  }
  if (!sizes.micro.has_value()) return divide(sizes.micro, *sizes.accumulation);
  if (!sizes.accumulation.has_value()) return divide(sizes.accumulation, *sizes.micro);
  const int64_t product = Product(*sizes.micro, *sizes.accumulation, ranks);
  if (product == *sizes.train) return "";
  return absl::StrCat(*sizes.micro, " x ", *sizes.accumulation, " x ", ranks, " is ", product,
                      ", not ", *sizes.train);
}

void ReadBatchSizes(DeepSpeedValues& values, const ConfigContext& context,
                    DeepSpeedConfig& result) {
  BatchSizes sizes;
  sizes.train = values.MaybeCount(kTrain, 1, kMost);
  sizes.micro = values.MaybeCount(kMicro, 1, kMost);
  sizes.accumulation = values.MaybeCount(kAccumulation, 1, kMost);
  for (const auto& [path, size] : {std::pair(kTrain, sizes.train), std::pair(kMicro, sizes.micro),
                                   std::pair(kAccumulation, sizes.accumulation)}) {
    // Wrong by itself, which has been said.
    const bool in_file = values.Find(path) != nullptr && !values.IsAuto(path);
    if ((in_file || values.Given(path) != nullptr) && !size.has_value()) return;
  }
  // "auto" without anything to derive it from is one sample.
  if (!sizes.train.has_value() && !sizes.micro.has_value() &&
      (values.IsAuto(kTrain) || values.IsAuto(kMicro))) {
    sizes.micro = 1;
  }
  const BatchSizes known = sizes;
  const std::string wrong = CompleteBatchSizes(sizes, context.world_size);
  if (!wrong.empty()) {
    const char* place = values.Find(kTrain) != nullptr ? kTrain : kMicro;
    values.Problem(
        place, absl::StrCat(kTrain, " is ", Shown(known.train), ", ", kMicro, " is ",
                            Shown(known.micro), ", ", kAccumulation, " is ",
                            Shown(known.accumulation), " and the world size is ",
                            context.world_size, context.world_size_source.empty() ? "" : ", from ",
                            context.world_size_source, ": ", wrong, "; ", kTrain, " must be ",
                            kMicro, " x ", kAccumulation, " x world size"));
    return;
  }
  result.train_batch_size = *sizes.train;
  result.micro_batch_size = *sizes.micro;
  result.accumulation_steps = *sizes.accumulation;
  values.Resolve(kTrain, absl::StrCat(*sizes.train));
  values.Resolve(kMicro, absl::StrCat(*sizes.micro));
  values.Resolve(kAccumulation, absl::StrCat(*sizes.accumulation));
}

}  // namespace zero
