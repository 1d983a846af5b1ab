// Offloaded state gives the bits of state that is not, wherever it lies.
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "io/disk_ring.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/refused_calls.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/offload_cells.h"
#include "zero/save/checkpoint_folder.h"

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

namespace {

// What the pairs do not vary.
struct Extra {
  std::optional<DType> communication;
  double predivide = 1;
  int evaluate_within = 0;
  bool check = false;
  bool saves = false;    // a checkpoint, and weights saved and loaded again, between steps
  bool resumes = false;  // from a checkpoint, with other things offloaded elsewhere
  bool shapes = false;   // a model of its own instead of the cell's
};

constexpr int kResumedAt = 2;

// Units whose slices end anywhere in a piece, a sector or a block of the layout.
Model RandomModel(std::mt19937& random, DType dtype) {
  const int64_t sizes[] = {1, 63, 129, 1009, 2047, 2049, 4095, 6151};
  Model model;
  const auto units = 2 + random() % 4;
  for (unsigned u = 0; u < units; ++u) {
    Unit unit;
    unit.name = absl::StrCat("u", u);
    const auto parameters = 1 + random() % 3;
    for (unsigned p = 0; p < parameters; ++p) {
      Parameter parameter;
      parameter.name = absl::StrCat(unit.name, ".", p);
      parameter.shape = {sizes[random() % std::size(sizes)]};
      parameter.dtype = dtype;
      parameter.group = static_cast<int>(random() % 2);
      unit.parameters.push_back(parameter);
    }
    model.units.push_back(unit);
  }
  return model;
}

ToyRun WithExtra(ToyRun run, const Extra& extra, const std::string& saves) {
  run.config.communication = extra.communication;
  run.config.gradient_predivide_factor = extra.predivide;
  run.config.check_gradients = extra.check;
  run.config.prefetch = 2;
  run.evaluate_within = extra.evaluate_within;
  if (!extra.saves) return run;
  run.between = [saves](ShardedOptimizer& optimizer, int, int step) -> absl::Status {
    if (step == 1) return optimizer.SaveCheckpoint(saves, {}).status();
    if (step != 2) return absl::OkStatus();
    ZERO_RETURN_IF_ERROR(optimizer.SaveWeights(saves + "/weights", {}).status());
    return optimizer.LoadWeights(saves + "/weights", {}).status();
  };
  return run;
}

// `first` up to kResumedAt, and `second` from the checkpoint that it left: the state at the end.
Outcome RunResumed(ToyRun first, ToyRun second, const std::string& folder) {
  first.steps = kResumedAt;
  first.between = [folder](ShardedOptimizer& optimizer, int, int step) -> absl::Status {
    if (step != kResumedAt) return absl::OkStatus();
    ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder).status());
    return optimizer.FinishCheckpoint();
  };
  Outcome saved = RunToy(first);
  if (!saved.status.ok()) return saved;
  second.first_step = kResumedAt;
  second.start = [folder](ShardedOptimizer& optimizer, int) -> absl::Status {
    return optimizer.LoadCheckpoint(folder + "/" + CheckpointName(kResumedAt)).status();
  };
  Outcome resumed = RunToy(second);
  resumed.steps.insert(resumed.steps.begin(), saved.steps.begin(), saved.steps.end());
  return resumed;
}

// Of a rank, in memory of the host.
int64_t OffloadedBytes(const ToyRun& run) {
  const absl::StatusOr<Plan> plan = MakePlan(run.config, run.model, run.ranks);
  REQUIRE_OK(plan.status());
  return plan->bytes_of(MemoryCategory::kHostStates) +
         plan->bytes_of(MemoryCategory::kHostWeights) + plan->bytes_of(MemoryCategory::kHostSlots);
}

// The host, on which a rank may offload so many bytes.
Backend WithHostCapacity(int64_t bytes) {
  Backend backend = HostBackend();
  backend.make_device = [bytes](int) {
    auto device = std::make_unique<HostDevice>();
    device->set_host_capacity(bytes);
    return device;
  };
  return backend;
}

Model OneParameter(int64_t elements) {
  Parameter parameter;
  parameter.name = "u.0";
  parameter.shape = {elements};
  Unit unit;
  unit.name = "u";
  unit.parameters = {parameter};
  Model model;
  model.units = {unit};
  return model;
}

// Names and bytes of what was saved, apart from what says how it was configured.
std::map<std::string, std::string> SavedFiles(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".safetensors") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[std::filesystem::relative(entry.path(), folder).string()] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

}  // namespace

TEST_CASE("Offload: random cells with saves in the middle give the bits and files of no offload",
          "[zero][matrix]") {
  std::mt19937 random(4711);
  const auto one_of = [&](const auto& values) { return values[random() % std::size(values)]; };
  const auto chance = [&](unsigned in) { return random() % in == 0; };
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  const auto offload_somewhere = [&](OffloadCell& cell) {
    cell.optimizer = one_of(std::array{Place::kHost, Place::kNvme});
    if (cell.stage == 3) {
      cell.parameters = one_of(std::array{Place::kHost, Place::kNvme, Place::kDevice});
    }
    cell.gradients = one_of(std::array{true, true, false});
    cell.ratio = one_of(std::array{1.0, 0.3, 0.001, 0.77});
    cell.buffers = 2 + static_cast<int>(random() % 3);
  };
  int resumed = 0, refused = 0;
  for (int i = 0; i < 60; ++i) {
    OffloadCell cell;
    cell.stage = 1 + static_cast<int>(random() % 3);
    offload_somewhere(cell);
    cell.micro_batches = 1 + static_cast<int>(random() % 3);
    cell.clip = static_cast<int>(random() % 3);
    cell.ranks = 1 + static_cast<int>(random() % 4);
    cell.dtype = one_of(dtypes);
    cell.accumulation = one_of(std::array{DType::kF32, DType::kBF16});
    if (cell.dtype == DType::kBF16) {
      cell.master = one_of(std::array{MasterKind::kF32, MasterKind::kSplit, MasterKind::kNone});
    }
    cell.kind =
        one_of(std::array{OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion});
    cell.overflows = chance(3);
    Extra extra;
    if (chance(3)) extra.communication = one_of(dtypes);
    if (chance(3)) extra.predivide = 4;
    extra.evaluate_within = static_cast<int>(random() % 2);
    extra.check = chance(3);
    extra.saves = chance(2);
    extra.resumes = !extra.saves && chance(2);
    extra.shapes = chance(2);
    cell.model = extra.shapes ? "large" : one_of(ModelNames());
    OffloadCell second = cell;
    offload_somewhere(second);
    const Model shapes = RandomModel(random, cell.dtype);
    INFO(i << ": " << cell.Name() << ", evaluations " << extra.evaluate_within << ", predivide "
           << extra.predivide << (extra.saves ? ", saves" : "")
           << (extra.shapes ? ", other shapes" : "")
           << (extra.resumes ? ", resumed as " + second.Name() : ""));
    const TemporaryFolder disk, with, without;
    const auto run_of = [&](const OffloadCell& of, const std::string& folder,
                            const std::string& saves) {
      ToyRun run = WithExtra(MakeRun(of, folder), extra, saves);
      if (extra.shapes) run.model = shapes;
      run.config.offload.piece_elements = of.buffers == 3 ? 4096 : 2048;
      return run;
    };
    const Outcome kept = RunToy(run_of(cell, "", without.path()));
    ToyRun run = run_of(cell, disk.path(), with.path());
    // What is planned is enough, to the byte; less is refused and leaves nothing.
    const int64_t needed = OffloadedBytes(run);
    if (needed > 0 && chance(2)) {
      run.backend = WithHostCapacity(needed - 1 - static_cast<int64_t>(random()) % needed);
      const Outcome outcome = RunToy(run);
      CHECK(absl::IsResourceExhausted(outcome.status));
      CHECK(outcome.live_bytes_left == 0);
      CHECK(disk.Names().empty());
      CHECK(with.Names().empty());
      ++refused;
    }
    run.backend = WithHostCapacity(needed);
    const Outcome offloaded =
        extra.resumes ? RunResumed(run, run_of(second, disk.path(), ""), with.path()) : RunToy(run);
    resumed += extra.resumes ? 1 : 0;
    CHECK_OK(kept.status);
    CHECK_OK(offloaded.status);
    CHECK(FirstDifference(kept, offloaded) == "");
    CHECK(disk.Names().empty());
    if (!extra.resumes) CHECK((SavedFiles(with.path()) == SavedFiles(without.path())));
  }
  CHECK(resumed > 10);
  CHECK(refused > 10);
}

TEST_CASE("Offload: a model without elements trains with an empty disk", "[zero]") {
  const TemporaryFolder folder;
  const Model model = OneParameter(0);
  for (int stage = 1; stage < 4; ++stage) {
    Config config;
    config.stage = stage;
    config.offload.optimizer = Place::kNvme;
    if (stage == 3) config.offload.parameters = Place::kNvme;
    config.offload.nvme_path = folder.path();
    HostDevice device;
    LocalWorld world(1);
    const auto optimizer = ShardedOptimizer::Create(config, model, &device, world.group(0));
    REQUIRE_OK(optimizer.status());
    const auto stream = device.CreateStream("trainer");
    REQUIRE_OK(stream.status());
    CHECK_OK((*optimizer)->BeginPass(Pass::kTrainLast));
    CHECK_OK((*optimizer)->AcquireWeights(0, **stream).status());
    CHECK_OK((*optimizer)->AcquireGradients(0, **stream).status());
    CHECK_OK((*optimizer)->ReduceGradients(0, **stream));
    CHECK_OK((*optimizer)->ReleaseWeights(0, **stream));
    CHECK_OK((*optimizer)->Step().status());
    CHECK_OK((*optimizer)->Finish());
  }
}

TEST_CASE("Offload: a checkpoint needs as much memory as without it", "[zero]") {
  const Model model = OneParameter(1 << 20);
  Config config;
  config.stage = 2;
  config.checkpoint_memory = int64_t{1} << 40;
  const auto kept = MakePlan(config, model, 1);
  config.offload.optimizer = Place::kHost;
  const auto offloaded = MakePlan(config, model, 1);
  REQUIRE_OK(kept.status());
  REQUIRE_OK(offloaded.status());
  CHECK(offloaded->bytes_of(MemoryCategory::kHostStaging) - OffloadScalarBytes(*offloaded) ==
        kept->bytes_of(MemoryCategory::kHostStaging));
}

TEST_CASE("Offload: masters are made of adopted weights wherever they lie", "[zero]") {
  const Place place = GENERATE(Place::kHost, Place::kNvme);
  const MasterKind master = GENERATE(MasterKind::kF32, MasterKind::kSplit, MasterKind::kNone);
  for (const int stage : {1, 2}) {
    INFO("stage " << stage << ", " << Name(place) << ", master " << Name(master));
    OffloadCell cell;
    cell.stage = stage;
    cell.optimizer = place;
    cell.master = master;
    cell.model = "mixed";
    cell.ratio = 0.3;
    std::vector<std::vector<float>> results[2];
    for (const bool offloaded : {false, true}) {
      const TemporaryFolder folder;
      const ToyRun run = MakeRun(cell, offloaded ? folder.path() : "");
      HostDevice device;
      LocalWorld world(1);
      const auto plan = MakePlan(run.config, run.model, 1);
      REQUIRE_OK(plan.status());
      const auto memory = device.Allocate(plan->weights.bytes, MemoryCategory::kOther, "weights");
      REQUIRE_OK(memory.status());
      for (int64_t i = 0; i < plan->weights.bytes / 2; ++i) {
        memory->as<uint16_t>()[i] = static_cast<uint16_t>(0x3C00 + i % 512);
      }
      Adopted adopted;
      adopted.weights = memory->data();
      const auto optimizer =
          ShardedOptimizer::Create(run.config, run.model, &device, world.group(0), adopted);
      REQUIRE_OK(optimizer.status());
      const auto keep = [&](const Parameter&, int64_t, absl::Span<const float> values) {
        results[offloaded ? 1 : 0].emplace_back(values.begin(), values.end());
        return absl::OkStatus();
      };
      CHECK_OK((*optimizer)->Read(State::kWeight, keep));
      CHECK_OK((*optimizer)->Read(State::kMaster, keep));
    }
    CHECK(results[0] == results[1]);
  }
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
  CHECK(absl::IsUnavailable(outcome.status));
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

TEST_CASE("Offload: that threads do what io_uring was to do is noted once and io_uring is no news",
          "[zero][thread]") {
  const auto notes_of = [](bool refuse) {
    std::vector<std::string> notes;
    const TemporaryFolder folder;
    Config config;
    config.offload.optimizer = Place::kNvme;
    config.offload.nvme_path = folder.path();
    LocalWorld world(1);
    bool refused = false;
    InThread([&] {
      refused = refuse && RefuseCall(SYS_io_uring_setup, EPERM);
      HostDevice device;
      const auto optimizer =
          ShardedOptimizer::Create(config, OneParameter(100), &device, world.group(0));
      if (optimizer.ok()) notes = (*optimizer)->notes();
      if (!optimizer.ok()) notes = {optimizer.status().ToString()};
    });
    REQUIRE(refused == refuse);
    return notes;
  };
  const auto of_ways = [](const std::vector<std::string>& notes) {
    std::vector<std::string> found;
    for (const std::string& note : notes) {
      if (absl::StrContains(note, "io_uring")) found.push_back(note);
    }
    return found;
  };
  const std::vector<std::string> threads = of_ways(notes_of(true));
  REQUIRE(threads.size() == 1);
  CHECK_THAT(threads[0], Catch::Matchers::StartsWith("pread and pwrite on 4 threads: "));
  // Where there is none it is told all the same.
  const bool have_ring = DiskRing::Create(1).ok();
  CHECK(of_ways(notes_of(false)).empty() == have_ring);
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
