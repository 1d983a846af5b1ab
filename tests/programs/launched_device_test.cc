#include "examples/train/processes.h"
#include "tests/catch.h"

namespace zero::programs {
namespace {

TEST_CASE("CudaDeviceOf: a process takes the GPU of its local rank and not of its rank") {
  train::Options options;
  Launch launch;
  launch.rank = 5;
  launch.size = 8;
  launch.local_rank = 1;
  CHECK(train::CudaDeviceOf(options, launch) == 1);
  options.cuda_device = 3;
  CHECK(train::CudaDeviceOf(options, launch) == 3);
  CHECK(train::CudaDeviceOf(options, std::nullopt) == 3);
}

TEST_CASE("CudaDeviceOf: without a local rank it is the first GPU") {
  Launch launch;
  launch.rank = 5;
  launch.size = 8;
  CHECK(train::CudaDeviceOf(train::Options(), launch) == 0);
  CHECK(train::CudaDeviceOf(train::Options(), std::nullopt) == 0);
}

}  // namespace
}  // namespace zero::programs
