#include "device/dtype.h"

#include "tests/catch.h"

namespace zero {
namespace {

TEST_CASE("DType: names can be parsed back, others are refused with the list", "[device]") {
  for (DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    const absl::StatusOr<DType> parsed = ParseDType(Name(type));
    REQUIRE_OK(parsed.status());
    CHECK(*parsed == type);
  }
  const absl::StatusOr<DType> refused = ParseDType("fp64");
  CHECK(absl::IsInvalidArgument(refused.status()));
  CHECK_THAT(std::string(refused.status().message()),
             ContainsSubstring("'fp64' is none of fp32, bf16, fp16"));
  CHECK(SizeOf(DType::kF32) == 4);
  CHECK(SizeOf(DType::kBF16) == 2);
  CHECK(SizeOf(DType::kF16) == 2);
}

}  // namespace
}  // namespace zero
