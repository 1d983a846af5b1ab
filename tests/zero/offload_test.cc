// Offloaded state gives the bits of state that is not, wherever it lies.
#include <algorithm>
#include <cerrno>

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
