#include "io/safetensors_image.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/safetensors_json.h"
#include "io/safetensors_layout.h"

namespace zero {
namespace {

// Checks the list and gives each tensor its bytes; the sum of all.
absl::StatusOr<int64_t> LayOut(std::vector<SafetensorsTensor>& tensors, SafetensorsOrder order) {
  std::set<std::string> names;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name),
                       tensor.name == "__metadata__" ? ": a reserved name" : " is listed twice"));
    }
    if (tensor.shape.size() > kSafetensorsRankLimit) {
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor.name), ": more than ",
                                                     kSafetensorsRankLimit, " dimensions"));
    }
  }
  if (order == SafetensorsOrder::kSorted) {
    std::sort(tensors.begin(), tensors.end(),
              [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                const int rank_a = SafetensorsDTypeOrder(a.dtype);
                const int rank_b = SafetensorsDTypeOrder(b.dtype);
                return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
              });
  }
  int64_t total = 0;
  for (SafetensorsTensor& tensor : tensors) {
    const absl::StatusOr<int64_t> bytes = BytesOf(tensor);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), ": ", std::string(bytes.status().message())));
    }
    tensor.begin = total;
    if (__builtin_add_overflow(total, *bytes, &total)) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), ": the file's size overflows 64 bits"));
    }
    tensor.end = total;
  }
  return total;
}

}  // namespace

absl::StatusOr<SafetensorsImage> PlanSafetensors(std::vector<SafetensorsTensor> tensors,
                                                 const std::map<std::string, std::string>& metadata,
                                                 SafetensorsOrder order) {
  ZERO_ASSIGN_OR_RETURN(const int64_t data_bytes, LayOut(tensors, order));
  ZERO_ASSIGN_OR_RETURN(const std::string text, FormatSafetensorsHeader({tensors, metadata}));
  if (static_cast<int64_t>(text.size()) > kSafetensorsHeaderLimit) {
    return absl::InvalidArgumentError(absl::StrCat("the header has ", text.size(),
                                                   " bytes; at most ", kSafetensorsHeaderLimit,
                                                   " are allowed"));
  }
  SafetensorsImage image;
  const uint64_t length = text.size();
  image.start.resize(sizeof(length));
  std::memcpy(image.start.data(), &length, sizeof(length));
  image.start += text;
  image.tensors = std::move(tensors);
  image.data_start = static_cast<int64_t>(image.start.size());
  if (__builtin_add_overflow(image.data_start, data_bytes, &image.bytes)) {
    return absl::InvalidArgumentError("the file's size overflows 64 bits");
  }
  return image;
}

}  // namespace zero
