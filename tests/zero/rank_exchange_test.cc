// Texts between ranks, and errors that all share.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "zero/misuse.h"
#include "zero/plan.h"
#include "zero/rank_exchange.h"

namespace zero::test {
namespace {

// Runs `body` on each of `ranks` with an exchange of its own.
absl::Status OnEach(
    int ranks,
    const std::function<absl::Status(RankExchange&, const Stream&, ProcessGroup*)>& body) {
  LocalWorld world(ranks, absl::Seconds(20));
  return RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(RankExchange exchange, RankExchange::Create(&device, group, "texts"));
    const MemoryTable memory = device.memory();
    if (memory[static_cast<int>(MemoryCategory::kStaging)].current !=
            RankExchange::DeviceBytes(ranks) ||
        memory[static_cast<int>(MemoryCategory::kHostStaging)].current !=
            RankExchange::HostBytes(ranks)) {
      return absl::InternalError("other memory than it says");
    }
    ZERO_ASSIGN_OR_RETURN(const auto stream, device.CreateStream("texts"));
    return body(exchange, *stream, group);
  });
}

}  // namespace

TEST_CASE("RankExchange: texts of any length come to every rank", "[zero][thread]") {
  for (const int ranks : {1, 3}) {
    const auto text = [](int rank) {
      // Nothing, less than a record, exactly one, and several.
      const int64_t lengths[] = {0, 10, RankExchange::kTextBytes, 3 * RankExchange::kTextBytes + 1};
      std::string made;
      for (int64_t i = 0; i < lengths[(rank + 1) % 4]; ++i) {
        made += static_cast<char>('a' + (i + rank) % 26);
      }
      return made;
    };
    CHECK_OK(OnEach(
        ranks,
        [&](RankExchange& exchange, const Stream& stream, ProcessGroup* group) -> absl::Status {
          for (int round = 0; round < 4; ++round) {
            ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                                  exchange.Run(stream, kSaving, text(group->rank() + round)));
            for (int r = 0; r < group->size(); ++r) {
              if (texts[static_cast<size_t>(r)] != text(r + round)) {
                return absl::InternalError(absl::StrCat("another text of rank ", r));
              }
            }
          }
          return absl::OkStatus();
        }));
  }
}

TEST_CASE("RankExchange: the first error of any rank becomes that of all", "[zero][thread]") {
  for (const int ranks : {1, 4}) {
    for (int failing = 0; failing < ranks; ++failing) {
      std::vector<absl::Status> agreed(static_cast<size_t>(ranks));
      CHECK_OK(OnEach(
          ranks,
          [&](RankExchange& exchange, const Stream& stream, ProcessGroup* group) -> absl::Status {
            ZERO_RETURN_IF_ERROR(exchange.Agree(stream, kSaving, absl::OkStatus()));
            const bool fails = group->rank() >= failing;
            agreed[static_cast<size_t>(group->rank())] = exchange.Agree(
                stream, kSaving,
                fails
                    ? absl::ResourceExhaustedError(absl::StrCat("disk ", group->rank(), " is full"))
                    : absl::OkStatus());
            // The group is as it was.
            return exchange.Agree(stream, kSaving, absl::OkStatus());
          }));
      for (const absl::Status& status : agreed) {
        CHECK(absl::IsResourceExhausted(status));
        CHECK(IsMisuse(status));
        CHECK(std::string(status.message()) ==
              (ranks == 1 ? "disk 0 is full"
                          : absl::StrCat("rank ", failing, ": disk ", failing, " is full")));
      }
    }
  }
}

}  // namespace zero::test
