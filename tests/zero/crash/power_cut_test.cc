// The power goes after each system call of a save: what was not synced is lost. A restart finds a
// complete checkpoint, and the new one from the moment on that the save was said to be complete.
#include <set>
#include <string>

#include "device/status.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/crash/recorded_files.h"
#include "tests/zero/crash/saving_run.h"

namespace zero::test {
namespace {

int64_t CutEverywhere(const SavingRun& run) {
  INFO(run.Name());
  std::vector<FileOperation> log;
  Outcome whole;
  int64_t begin = 0;
  int64_t complete = 0;
  {
    const TemporaryFolder folder;
    RecordedFiles files(folder.path());
    whole = run.Run(
        folder.path(),
        [&](int rank) {
          if (rank == 0) begin = files.size();
        },
        [&](int rank) {
          // Every rank has been told by then.
          if (rank == 0) complete = files.size();
        });
    REQUIRE_OK(whole.status);
    log = files.log();
  }
  REQUIRE(begin > 0);
  REQUIRE(complete > begin);
  std::set<std::map<std::string, std::string>> seen;
  int64_t images = 0;
  for (const Names names : {Names::kLost, Names::kKept}) {
    for (int64_t count = begin; count <= static_cast<int64_t>(log.size()); ++count) {
      const auto image = ImageAfter(log, count, names);
      const bool must_be_new = count >= complete;
      if (!seen.insert(image).second && !must_be_new) continue;
      INFO("after " << count - begin << " calls of the save; names "
                    << (names == Names::kLost ? "lost" : "kept"));
      ++images;
      const TemporaryFolder folder;
      WriteImage(image, folder.path());
      const ProcessEnd restarted = InProcess([&]() -> std::string {
        int64_t step = 0;
        std::string wrong = Restart(run, folder.path(), whole, &step);
        if (wrong.empty() && must_be_new && step != kSecondSave) wrong = "the new one is lost";
        return wrong;
      });
      CHECK(restarted.said == "");
    }
  }
  return images;
}

// The images themselves, on a log made by hand.
TEST_CASE("Power cut: what was not synced is not in the image", "[zero][checkpoint][crash]") {
  using Op = FileOperation;
  const std::vector<Op> log = {{Op::kMake, "a.tmp"},        {Op::kWrite, "a.tmp", "", "one"},
                               {Op::kSync, "a.tmp"},        {Op::kWrite, "a.tmp", "", "two", 3},
                               {Op::kRename, "a.tmp", "a"}, {Op::kSync, "."}};
  using Image = std::map<std::string, std::string>;
  CHECK(ImageAfter(log, 2, Names::kLost) == Image());
  CHECK(ImageAfter(log, 2, Names::kKept) == Image{{"a.tmp", ""}});
  CHECK(ImageAfter(log, 5, Names::kLost) == Image());
  CHECK(ImageAfter(log, 5, Names::kKept) == Image{{"a", "one"}});
  CHECK(ImageAfter(log, 6, Names::kLost) == Image{{"a", "one"}});
}

TEST_CASE("Power cut: after whatever call the power goes a restart goes on bit for bit",
          "[zero][checkpoint][crash]") {
  int64_t images = 0;
  images += CutEverywhere({2, 3, false, "mixed"});
  images += CutEverywhere({3, 1, true, "odd"});
  images += CutEverywhere({4, 0, false, "tiny"});
  images += CutEverywhere({2, 3, false, "blocks"});
  INFO(images << " images");
  CHECK(images > 50);
}

}  // namespace
}  // namespace zero::test
