// Offloaded state gives the bits of state that is not, wherever it lies.
#include <algorithm>
#include <cerrno>

#include "device/status.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/offload_cells.h"

namespace zero::test {

TEST_CASE("Offload: every pair of factors gives the bits of a run that offloads nothing",
          "[zero][matrix]") {
  const std::vector<OffloadCell> cells = MakeOffloadCells(2);
  const int part = GENERATE(0, 1, 2, 3);
  for (size_t i = static_cast<size_t>(part); i < cells.size(); i += 4) CheckOffloadCell(cells[i]);
}

TEST_CASE("Offload: every triple of factors gives the bits of a run that offloads nothing",
          "[zero][matrix][more]") {
  for (const OffloadCell& cell : MakeOffloadCells(3)) CheckOffloadCell(cell);
}

TEST_CASE("Offload: transfers that are cut short or interrupted change no bit", "[zero]") {
  OffloadCell cell;
  cell.optimizer = Place::kNvme;
  cell.parameters = Place::kNvme;
  cell.ranks = 2;
  cell.micro_batches = 2;
  cell.model = "large";
  FaultyTransfers transfers;
  int calls = 0;
  transfers.transfer = [&](bool, size_t* bytes, off_t) {
    ++calls;
    if (calls % 3 == 0) *bytes = std::min<size_t>(*bytes, 512);
    return calls % 5 == 0 ? EINTR : 0;
  };
  CheckOffloadCell(cell);
  CHECK(calls > 500);
}

TEST_CASE("Offload: a disk that fails is told to every rank with file and bytes", "[zero]") {
  OffloadCell cell;
  cell.optimizer = Place::kNvme;
  cell.ranks = 2;
  cell.model = "large";
  const TemporaryFolder folder;
  const bool full = GENERATE(false, true);
  FaultyTransfers transfers;
  transfers.transfer = [&](bool writes, size_t*, off_t) {
    return !writes ? 0 : full ? ENOSPC : EIO;
  };
  const Outcome outcome = RunToy(MakeRun(cell, folder.path()));
  INFO(outcome.status);
  CHECK(outcome.status.code() ==
        (full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDataLoss));
  const std::string message(outcome.status.message());
  CHECK(message.find(folder.path()) != std::string::npos);
  CHECK(message.find(full ? "No space left on device" : "Input/output error") != std::string::npos);
  CHECK(message.find("bytes") != std::string::npos);
  CHECK(folder.Names().empty());
}

TEST_CASE("Offload: a folder that is none or has no room is refused before anything is allocated",
          "[zero]") {
  OffloadCell cell;
  cell.optimizer = Place::kNvme;
  cell.ranks = 2;
  const TemporaryFolder folder;
  ToyRun run = MakeRun(cell, folder.path());
  SECTION("missing") {
    run.config.offload.nvme_path = folder.File("missing");
    const Outcome outcome = RunToy(run);
    INFO(outcome.status);
    CHECK(absl::IsNotFound(outcome.status));
    CHECK(std::string(outcome.status.message()).find("missing") != std::string::npos);
  }
  SECTION("full") {
    FaultyTransfers transfers;
    transfers.refuses_room = ENOSPC;
    const Outcome outcome = RunToy(run);
    INFO(outcome.status);
    CHECK(absl::IsResourceExhausted(outcome.status));
    CHECK(std::string(outcome.status.message()).find("free") != std::string::npos);
  }
  CHECK(folder.Names().empty());
}

TEST_CASE("Offload: the report has the bytes that the plan gives a step", "[zero]") {
  OffloadCell cell;
  cell.optimizer = Place::kNvme;
  cell.parameters = Place::kNvme;
  cell.model = "large";
  cell.dtype = DType::kBF16;
  const TemporaryFolder folder;
  ToyRun run = MakeRun(cell, folder.path());
  run.evaluate_between = false;
  run.config.poison_slots = false;
  std::vector<OffloadReport> reports;
  run.between = [&](ShardedOptimizer& optimizer, int, int) -> absl::Status {
    ZERO_RETURN_IF_ERROR(optimizer.Finish());
    reports.push_back(optimizer.offload_report());
    return absl::OkStatus();
  };
  const Outcome outcome = RunToy(run);
  REQUIRE_OK(outcome.status);
  REQUIRE(reports.size() == 4);
  // Units of one, ten and one piece, in records of 4096 bytes a section: gradients, masters and two
  // moments in fp32. With one slot of prefetch and three units a pass gathers five.
  int64_t gradients = 0;
  int64_t states = 0;
  int64_t weights = 0;
  for (const auto& unit : outcome.plan.offload.pieces) {
    for (const OffloadPiece& piece : unit) {
      const auto padded = [](int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
      gradients += padded(4 * piece.count);
      states += 3 * padded(4 * piece.count);
      weights += padded(2 * piece.count);
    }
  }
  for (size_t i = 1; i < reports.size(); ++i) {
    const OffloadReport& before = reports[i - 1];
    const OffloadReport& after = reports[i];
    INFO("step " << i);
    CHECK(after.bytes_written - before.bytes_written == gradients + states + weights);
    const int64_t read = after.bytes_read - before.bytes_read - gradients - states;
    CHECK(read >= weights);
    CHECK(read <= 2 * weights);
    CHECK(after.optimizer > before.optimizer);
    CHECK(after.disk_read > before.disk_read);
    CHECK(after.disk_write > before.disk_write);
    CHECK(after.await_weights >= before.await_weights);
    CHECK(after.await_piece >= before.await_piece);
    CHECK(after.bytes_to_device > before.bytes_to_device);
    CHECK(after.bytes_from_device > before.bytes_from_device);
  }
}

TEST_CASE("Offload: a small matrix has no data race", "[zero][thread]") {
  OffloadCell cell;
  cell.ranks = 2;
  cell.micro_batches = 2;
  cell.model = "large";
  CheckOffloadCell(cell);
  cell.optimizer = Place::kNvme;
  cell.parameters = Place::kNvme;
  cell.ratio = 0.3;
  CheckOffloadCell(cell);
  cell.stage = 1;
  cell.parameters = Place::kDevice;
  cell.master = MasterKind::kSplit;
  CheckOffloadCell(cell);
}

}  // namespace zero::test
