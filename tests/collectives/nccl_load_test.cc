// The library as it is found on this machine: no stand-in is part of this program.
#include "collectives/nccl_api.h"
#include "tests/catch.h"

namespace zero::test {
namespace {

TEST_CASE("NCCL library: the one of this machine is taken whole or refused with a reason",
          "[collectives][nccl]") {
  const absl::StatusOr<const NcclApi*> api = LoadNccl();
  if (!api.ok()) {
    CHECK(absl::IsUnimplemented(api.status()));
    CHECK(!api.status().message().empty());
    return;
  }
  CHECK_OK(CheckNcclVersion((*api)->version));
  CHECK(std::string((*api)->get_error_string(ncclSuccess)) != "");
  CHECK((*api)->reduce_scatter != nullptr);
  CHECK(LoadNccl().value() == *api);
}

TEST_CASE("NCCL library: one that does not exist is refused with where to put it",
          "[collectives][nccl]") {
  const absl::Status status = LoadNcclFrom("libnccl-of-nobody.so.2").status();
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("libnccl-of-nobody.so.2"));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("LD_LIBRARY_PATH"));
}

TEST_CASE("NCCL library: another library is refused by the first function that it lacks",
          "[collectives][nccl]") {
  const absl::Status status = LoadNcclFrom("libm.so.6").status();
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("ncclGetVersion"));
}

TEST_CASE("NCCL library: a version that cannot be asked or is too old is refused",
          "[collectives][nccl]") {
  setenv("ZERO_TEST_NCCL_VERSION", "22809", 1);
  CHECK_OK(LoadNcclFrom(ZERO_SMALL_NCCL).status());
  setenv("ZERO_TEST_NCCL_VERSION", "21403", 1);
  CHECK_THAT(std::string(LoadNcclFrom(ZERO_SMALL_NCCL).status().message()),
             ContainsSubstring("21403"));
  setenv("ZERO_TEST_NCCL_VERSION", "none", 1);
  CHECK_THAT(std::string(LoadNcclFrom(ZERO_SMALL_NCCL).status().message()),
             ContainsSubstring("ncclGetVersion"));
  unsetenv("ZERO_TEST_NCCL_VERSION");
}

}  // namespace
}  // namespace zero::test
