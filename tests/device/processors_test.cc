#include "device/processors.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "device/thread_pool.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"

namespace zero::test {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

Processors Found(const std::string& root) {
  const absl::StatusOr<Processors> found = FindProcessors(root);
  REQUIRE_OK(found.status());
  return *found;
}

TEST_CASE("Processors: they are those that the thread may run on", "[device]") {
  const TemporaryFolder folder;
  const Processors before = Found(folder.File("none"));
  REQUIRE(!before.cores.empty());
  CHECK(before.at_once == static_cast<int>(before.cores.size()));
  Processors bound;
  std::thread([&] {
    if (!BindThread(pthread_self(), {before.cores.back()}).ok()) return;
    const absl::StatusOr<Processors> found = FindProcessors(folder.File("none"));
    if (found.ok()) bound = *found;
  }).join();
  CHECK(bound == Processors{{before.cores.back()}, 1});
  CHECK(Found(folder.File("none")) == before);
}

TEST_CASE("Processors: quotas of control groups and of those around them bound what runs at once",
          "[device]") {
  const TemporaryFolder folder;
  const int cores = static_cast<int>(Found(folder.File("none")).cores.size());
  const auto at_once = [&](const std::string& name, const std::string& groups,
                           const std::string& file, const std::string& text) {
    const std::string root = folder.File(name);
    Write(root + "/proc/self/cgroup", groups);
    Write(root + "/sys/fs/cgroup/" + file, text);
    if (file.ends_with("quota_us")) {
      const std::string period = file.substr(0, file.size() - 8) + "period_us";
      Write(root + "/sys/fs/cgroup/" + period, "100000\n");
    }
    const Processors found = Found(root);
    CHECK(static_cast<int>(found.cores.size()) == cores);
    return found.at_once;
  };
  CHECK(at_once("a", "0::/\n", "cpu.max", "100000 100000\n") == 1);
  CHECK(at_once("b", "0::/\n", "cpu.max", "max 100000\n") == cores);
  // Rounded up, at least one, and no more than there are cores.
  CHECK(at_once("c", "0::/\n", "cpu.max", "20000 100000\n") == 1);
  CHECK(at_once("d", "0::/\n", "cpu.max", "150000 100000\n") == std::min(2, cores));
  CHECK(at_once("e", "0::/\n", "cpu.max", "900000000 100000\n") == cores);
  CHECK(at_once("f", "0::/job/step\n", "job/step/cpu.max", "50000 100000\n") == 1);
  CHECK(at_once("g", "0::/job/step\n", "job/cpu.max", "50000 100000\n") == 1);
  CHECK(at_once("h", "0::/job/step\n", "other/cpu.max", "50000 100000\n") == cores);
  CHECK(at_once("i", "4:cpu,cpuacct:/job\n", "cpu/job/cpu.cfs_quota_us", "100000\n") == 1);
  CHECK(at_once("j", "4:cpuset:/job\n", "cpu/job/cpu.cfs_quota_us", "100000\n") == cores);
  CHECK(at_once("k", "4:cpu:/job\n", "cpu/cpu.cfs_quota_us", "-1\n") == cores);
  CHECK(at_once("l", "4:cpu:/job\n", "cpu/cpu.cfs_quota_us", "100000\n") == 1);
}

TEST_CASE("Processors: ranks get equal neighbouring shares that cover all cores once", "[device]") {
  for (const int cores : {1, 2, 3, 7, 8, 64}) {
    for (const int ranks : {1, 2, 3, 4, 8, 100}) {
      for (const int at_once : {1, (cores + 1) / 2, cores}) {
        CAPTURE(cores, ranks, at_once);
        Processors all{std::vector<int>(cores), at_once};
        std::iota(all.cores.begin(), all.cores.end(), 10);
        std::vector<int> owners(cores, 0);
        int together = 0;
        for (int r = 0; r < ranks; ++r) {
          const Processors share = ShareOf(all, r, ranks);
          const int size = static_cast<int>(share.cores.size());
          REQUIRE(size >= std::max(1, cores / ranks));
          REQUIRE(size <= cores / ranks + 1);
          REQUIRE(share.at_once >= 1);
          REQUIRE(share.at_once <= size);
          together += share.at_once;
          for (int i = 0; i < size; ++i) {
            REQUIRE(share.cores[i] == share.cores[0] + i);
            ++owners[share.cores[i] - 10];
          }
        }
        // More ranks than cores share them evenly.
        const int least = std::max(1, ranks / cores);
        for (const int owned : owners) {
          REQUIRE(owned >= least);
          REQUIRE(owned <= (ranks <= cores ? 1 : least + 1));
        }
        REQUIRE(together <= std::max(at_once, ranks));
      }
    }
  }
}

TEST_CASE("Processors: cores that there are not are refused and change nothing", "[device]") {
  const Processors before = Found("");
  for (const std::vector<int>& cores : {std::vector<int>{}, std::vector<int>{-1},
                                        std::vector<int>{1 << 20}, std::vector<int>{16383}}) {
    const absl::Status refused = BindThread(pthread_self(), cores);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(std::string(refused.message()), ContainsSubstring("bound to the cores {"));
  }
  CHECK(Found("").cores == before.cores);
}

TEST_CASE("ThreadPool: its threads run on the cores that it was given", "[device][thread]") {
  const std::vector<int> all = Found("").cores;
  const int chosen = all.back();
  ThreadPool pool(4, {chosen});
  CHECK_OK(pool.binding());
  CHECK(pool.threads() == 4);
  const std::thread::id caller = std::this_thread::get_id();
  // Of each piece; the caller's may be anywhere.
  std::vector<int> core(64, chosen);
  std::vector<int> wide(64, 1);
  pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (std::this_thread::get_id() == caller) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // leaves some to the others
        continue;
      }
      core[i] = sched_getcpu();
      const absl::StatusOr<Processors> mine = FindProcessors();
      wide[i] = mine.ok() ? static_cast<int>(mine->cores.size()) : 0;
    }
  });
  CHECK(core == std::vector<int>(64, chosen));
  CHECK(wide == std::vector<int>(64, 1));
  // The calling thread is where it was.
  CHECK(Found("").cores == all);
}

TEST_CASE("ThreadPool: threads that cannot be bound work all the same and the pool says why",
          "[device][thread]") {
  ThreadPool pool(3, {16383});
  CHECK(absl::IsInvalidArgument(pool.binding()));
  std::vector<int> touched(1000, 0);
  pool.ParallelFor(1000, 1, [&touched](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++touched[i];
  });
  CHECK(touched == std::vector<int>(1000, 1));
  CHECK_OK(ThreadPool(3).binding());
}

}  // namespace
}  // namespace zero::test
