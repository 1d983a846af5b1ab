#include "io/safetensors_layout.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"

namespace zero {
namespace {

struct DTypeRow {
  const char* name;
  int bits;
};

constexpr std::array<DTypeRow, 22> kDTypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

std::string DescribeShape(const SafetensorsTensor& tensor) {
  return absl::StrCat(tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "]");
}

}  // namespace

int64_t SafetensorsTensor::elements() const {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

const char* SafetensorsName(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  return "unknown";
}

std::string DescribeTensor(const std::string& name) {
  constexpr size_t kLimit = 120;
  if (name.size() <= kLimit) return absl::StrCat("tensor '", absl::Utf8SafeCEscape(name), "'");
  size_t length = kLimit;
  while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80) --length;
  return absl::StrCat("tensor '", absl::Utf8SafeCEscape(name.substr(0, length)), "...' (name of ",
                      name.size(), " bytes)");
}

int SafetensorsDTypeOrder(const std::string& dtype) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (dtype == kDTypes[i].name) return static_cast<int>(i);
  }
  return -1;
}

absl::StatusOr<int64_t> BytesOf(const SafetensorsTensor& tensor) {
  const int order = SafetensorsDTypeOrder(tensor.dtype);
  if (order < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown dtype '", absl::Utf8SafeCEscape(tensor.dtype.substr(0, 40)), "'"));
  }
  // Dimensions of 0 are left out of the product, so that overflow does not depend on their place.
  int64_t bits = kDTypes[static_cast<size_t>(order)].bits;
  bool empty = false;
  for (int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(absl::StrCat("negative dimension ", dimension));
    }
    if (dimension == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bits, dimension, &bits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the size of ", DescribeShape(tensor), " overflows 64 bits"));
    }
  }
  if (empty) return 0;
  if (bits % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(DescribeShape(tensor), " is not a whole number of bytes"));
  }
  return bits / 8;
}

absl::Status CheckLayout(std::vector<SafetensorsTensor>& tensors, int64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  int64_t expected = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::string range = absl::StrCat(DescribeTensor(tensor.name), ": data_offsets [",
                                           tensor.begin, ", ", tensor.end, "]");
    if (tensor.end < tensor.begin)
      return absl::DataLossError(absl::StrCat(range, " end too early"));
    const absl::StatusOr<int64_t> bytes = BytesOf(tensor);
    if (!bytes.ok()) {
      return absl::DataLossError(
          absl::StrCat(DescribeTensor(tensor.name), ": ", std::string(bytes.status().message())));
    }
    if (tensor.bytes() != *bytes) {
      return absl::DataLossError(absl::StrCat(range, " hold ", tensor.bytes(), " bytes, but ",
                                              DescribeShape(tensor), " has ", *bytes));
    }
    if (tensor.begin != expected) {
      return absl::DataLossError(absl::StrCat(range,
                                              tensor.begin > expected ? " leave a gap" : " overlap",
                                              ": the tensor before ends at byte ", expected));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    return absl::DataLossError(absl::StrCat(
        "the tensors take ", expected, " bytes after the header, but the file has ", data_bytes,
        expected > data_bytes ? ": it is cut short" : ": something was appended"));
  }
  return absl::OkStatus();
}

}  // namespace zero
