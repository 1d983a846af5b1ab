#include "kernels/simd_targets.h"

#include <set>

#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

TEST_CASE("LimitSimdTargets: an unknown name is refused with the list of names", "[kernels]") {
  const std::string before = SimdTargetName();
  const absl::Status status = LimitSimdTargets("avx9");
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  for (const char* name : {"avx9", "best", "avx512", "avx2", "sse4", "ssse3", "scalar"}) {
    CHECK_THAT(std::string(status.message()), ContainsSubstring(name));
  }
  CHECK(SimdTargetName() == before);
}

TEST_CASE("LimitSimdTargets: the kernels run with what is left below each limit", "[kernels]") {
  // Each limit allows its own target and those below it.
  const std::vector<std::string> ascending = {"scalar", "ssse3", "sse4", "avx2", "avx512"};
  std::set<std::string> allowed;
  KernelRun run;
  Elements in(DType::kF32, RandomFloats(2049, 41), 1);
  Elements expected(DType::kBF16, 2049);
  for (int64_t i = 0; i < in.size(); ++i) expected.Set(i, in.Get(i));
  for (const std::string& name : ascending) {
    allowed.insert(name);
    REQUIRE_OK(LimitSimdTargets(name));
    INFO("limit " << name << ", in use " << SimdTargetName());
    CHECK(allowed.count(SimdTargetName()) == 1);
    Elements out(DType::kBF16, in.size());
    CHECK_OK(Cast(run.stream(), run.On(in), in.type(), run.On(out), out.type(), in.size()));
    run.Finish();
    CHECK(out.Difference(expected) == "");
  }
  const std::string widest = SimdTargetName();
  REQUIRE_OK(LimitSimdTargets("best"));
  CHECK(SimdTargetName() == widest);
}

#if defined(__x86_64__)
TEST_CASE("LimitSimdTargets: sse4 and scalar are in every x86 build", "[kernels]") {
  REQUIRE_OK(LimitSimdTargets("sse4"));
  CHECK(SimdTargetName() == "sse4");
  REQUIRE_OK(LimitSimdTargets("scalar"));
  CHECK(SimdTargetName() == "scalar");
  REQUIRE_OK(LimitSimdTargets("best"));
}
#endif

}  // namespace
}  // namespace zero
