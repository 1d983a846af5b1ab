#include "device/host_memory.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/device/device_test_util.h"
#include "tests/io/temporary_folder.h"

namespace zero::test {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("HostMemoryLimit: what a process has touched counts with what the system still has",
          "[device]") {
  const TemporaryFolder folder;
  const std::string root = folder.File("root");
  CHECK(HostMemoryLimit(root) == std::numeric_limits<int64_t>::max());
  Write(root + "/proc/meminfo",
        "MemTotal:  4000 kB\nMemFree:  100 kB\nMemAvailable:  3000 kB\nHugePages_Total:  0\n");
  CHECK(HostMemoryLimit(root) == 3000 * 1024);
  Write(root + "/proc/self/statm", "900 10 5 1 0 300 0\n");
  CHECK(HostMemoryLimit(root) == 3000 * 1024 + 10 * 4096);
}

TEST_CASE("HostMemoryLimit: it is that of the control group where that is lower", "[device]") {
  const TemporaryFolder folder;
  const auto limit = [&](const std::string& name, const std::string& groups,
                         const std::string& file, const std::string& text) {
    const std::string root = folder.File(name);
    Write(root + "/proc/meminfo", "MemAvailable:  3000 kB\n");
    Write(root + "/proc/self/cgroup", groups);
    Write(root + "/sys/fs/cgroup/" + file, text);
    return HostMemoryLimit(root);
  };
  CHECK(limit("a", "0::/\n", "memory.max", "65536\n") == 65536);
  CHECK(limit("b", "0::/\n", "memory.max", "max\n") == 3000 * 1024);
  CHECK(limit("c", "0::/job/step\n", "job/step/memory.max", "70000\n") == 70000);
  CHECK(limit("d", "8:pids:/\n4:memory:/job\n0::/\n", "memory/job/memory.limit_in_bytes",
              "80000\n") == 80000);
  CHECK(limit("e", "4:memory:/job\n", "memory/memory.limit_in_bytes", "9223372036854771712\n") ==
        3000 * 1024);
}

TEST_CASE("HostDevice: devices of one process share the memory that there is", "[device]") {
  // Nothing of it is touched.
  const int64_t most = HostMemoryLimit();
  if (kPoison || most == std::numeric_limits<int64_t>::max()) return;
  HostDevice a;
  HostDevice b;
  auto first = a.Allocate(most / 3 * 2, MemoryCategory::kWeights, "first");
  REQUIRE(first.ok());
  {
    const auto second = b.Allocate(most / 2, MemoryCategory::kWeights, "second");
    REQUIRE(absl::IsResourceExhausted(second.status()));
    CHECK_THAT(std::string(second.status().message()),
               ContainsSubstring("second: ") && ContainsSubstring("this machine's memory in all") &&
                   ContainsSubstring("are allocated already"));
  }
  const auto huge = b.Allocate(std::numeric_limits<int64_t>::max(), MemoryCategory::kOther, "huge");
  CHECK(absl::IsResourceExhausted(huge.status()));
  CHECK(b.Allocate(most / 6, MemoryCategory::kWeights, "third").ok());
  first = Buffer();
  CHECK(b.Allocate(most / 2, MemoryCategory::kWeights, "fourth").ok());
}

}  // namespace
}  // namespace zero::test
