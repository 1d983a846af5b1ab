// What is refused before a group over NCCL exists, and how.
#include <cstdlib>
#include <thread>
#include <vector>

#include "collectives/nccl_hints.h"
#include "collectives/nccl_identity.h"
#include "collectives/nccl_status.h"
#include "collectives/watchdog.h"
#include "tests/collectives/nccl_test_util.h"
#include "tests/standin/cudart.h"

namespace zero::test {
namespace {

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

absl::Status Nothing(const NcclTestRank&) { return absl::OkStatus(); }

NcclIdentity Identity(const std::string& host, const std::string& bus_id) {
  NcclIdentity identity;
  identity.version = 22809;
  identity.host = host;
  identity.boot = "boot of " + host;
  identity.bus_id = bus_id;
  return identity;
}

TEST_CASE("NCCL start: two ranks on one GPU are refused on every rank by bus id with a hint",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3);
  world.gpus = {0, 1, 0};
  for (const absl::Status& status : OnEachNcclRank(world, Nothing)) {
    INFO(status.ToString());
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(Contains(status, "ranks 0 and 2 both use GPU "));
    CHECK(Contains(status, "CUDA_VISIBLE_DEVICES"));
    CHECK(Contains(status, "threads of one process"));
  }
}

TEST_CASE("NCCL start: a version that is too old is refused", "[collectives][nccl][thread]") {
  for (int version : {21703, 30001}) {
    const NcclStandin standin;
    standin::SetNcclVersion(version);
    NcclWorld world(2);
    for (const absl::Status& status : OnEachNcclRank(world, Nothing)) {
      INFO(status.ToString());
      CHECK(absl::IsUnimplemented(status));
      CHECK(Contains(status, std::to_string(version)));
      CHECK(Contains(status, "21800"));
    }
  }
}

TEST_CASE(
    "NCCL start: a flag that is not pinned is refused and other memory that is not does no harm",
    "[collectives][nccl][thread]") {
  const NcclStandin standin(1);
  LocalChannels channels(1, absl::Seconds(60));
  const auto device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  standin::FailCall("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  const auto before = (*device)->AllocateHost(100, MemoryCategory::kOther, "before");
  REQUIRE_OK(before.status());
  CHECK_FALSE((*device)->pinning_refusal().ok());
  CHECK_OK(CreateNcclGroup(device->get(), channels.channel(0)).status());
  standin::FailCall("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  LocalChannels others(1, absl::Seconds(60));
  const absl::Status refused = CreateNcclGroup(device->get(), others.channel(0)).status();
  INFO(refused.ToString());
  CHECK(absl::IsResourceExhausted(refused));
  for (const char* words : {"failure flag of the group", "must be pinned", "ulimit -l"}) {
    CHECK(Contains(refused, words));
  }
}

TEST_CASE("NCCL start: versions from 2.18 up to 3 are taken", "[collectives][nccl]") {
  CHECK_OK(CheckNcclVersion(21800));
  CHECK_OK(CheckNcclVersion(22809));
  CHECK(!CheckNcclVersion(21799).ok());
  CHECK(!CheckNcclVersion(2708).ok());
  CHECK(!CheckNcclVersion(30000).ok());
}

TEST_CASE("NCCL start: an exchange that fails says which variables are worth trying",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  standin::FailNccl("ncclSend", 1, ncclSystemError);
  NcclWorld world(2);
  for (const absl::Status& status : OnEachNcclRank(world, Nothing)) {
    INFO(status.ToString());
    CHECK(absl::IsAborted(status));
    CHECK(Contains(status, "NCCL does not work"));
    CHECK(Contains(status, "'self-test'"));
    for (const char* hint : {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1",
                             "NCCL_SOCKET_IFNAME", "NCCL_DEBUG=INFO"}) {
      CHECK(Contains(status, hint));
    }
  }
}

TEST_CASE("NCCL start: a rank that never comes is named within the deadline",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Milliseconds(300));
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  const absl::Status status =
      CreateNcclGroup(device->get(), world.channels.channel(0), world.options).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Contains(status, "rank 1"));
}

TEST_CASE("NCCL start: a rank that stays away after it said who it is ends the wait",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Milliseconds(300));
  std::thread rank_1([&] {
    world.channels.channel(1)
        ->Exchange("nccl", Identity("elsewhere", "0000:07:00.0").Encode())
        .IgnoreError();
  });
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  const absl::Status status =
      CreateNcclGroup(device->get(), world.channels.channel(0), world.options).status();
  rank_1.join();
  INFO(status.ToString());
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Contains(status, "start of NCCL: rank 0 waited 300ms for rank 1"));
}

TEST_CASE("NCCL start: a rank that says nonsense of itself is kDataLoss",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2);
  std::thread rank_1([&] { world.channels.channel(1)->Exchange("nccl", "hello").IgnoreError(); });
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  const absl::Status status =
      CreateNcclGroup(device->get(), world.channels.channel(0), world.options).status();
  rank_1.join();
  CHECK(absl::IsDataLoss(status));
  CHECK(Contains(status, "hello"));
}

TEST_CASE("NCCL start: CUDA_LAUNCH_BLOCKING is refused", "[collectives][nccl][thread]") {
  const NcclStandin standin;
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  NcclWorld refused(1);
  const std::vector<absl::Status> statuses = OnEachNcclRank(refused, Nothing);
  setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
  NcclWorld taken(1);
  CHECK(FirstNcclError(OnEachNcclRank(taken, Nothing)) == "");
  unsetenv("CUDA_LAUNCH_BLOCKING");
  CHECK(absl::IsFailedPrecondition(statuses[0]));
  CHECK(Contains(statuses[0], "rank 0"));
  CHECK(Contains(statuses[0], "CUDA_LAUNCH_BLOCKING=1"));
}

TEST_CASE("NCCL status: each result has the code that says what can be done",
          "[collectives][nccl]") {
  const NcclApi& api = *LoadNccl().value();
  const auto code = [&](ncclResult_t result) {
    const absl::Status status = NcclStatus(api, result, "a call on rank 1", "ncclSend");
    CHECK((status.ok() || Contains(status, "a call on rank 1: ncclSend: ")));
    return status.code();
  };
  CHECK(code(ncclSuccess) == absl::StatusCode::kOk);
  CHECK(code(ncclInProgress) == absl::StatusCode::kOk);
  CHECK(code(ncclSystemError) == absl::StatusCode::kAborted);
  CHECK(code(ncclRemoteError) == absl::StatusCode::kAborted);
  CHECK(code(ncclInvalidUsage) == absl::StatusCode::kFailedPrecondition);
  CHECK(code(ncclInvalidArgument) == absl::StatusCode::kInternal);
  CHECK(code(ncclUnhandledCudaError) == absl::StatusCode::kInternal);
}

TEST_CASE("NCCL identity: what is decoded is what was encoded", "[collectives][nccl]") {
  NcclIdentity identity = Identity("host,with\ncommas", "0000:3B:00.0");
  identity.unique_id = std::string("\0\xFF,x", 4);
  identity.status = absl::InternalError("two\nlines, and a comma");
  const absl::StatusOr<NcclIdentity> decoded = NcclIdentity::Decode(identity.Encode());
  REQUIRE_OK(decoded.status());
  CHECK(decoded->version == 22809);
  CHECK(decoded->host == identity.host);
  CHECK(decoded->boot == identity.boot);
  CHECK(decoded->bus_id == identity.bus_id);
  CHECK(decoded->unique_id == identity.unique_id);
  CHECK(decoded->status == identity.status);
  for (const char* text : {"", "1,2,3", "x,0,,,,,", "1,x,,,,,"}) {
    CHECK(absl::IsDataLoss(NcclIdentity::Decode(text).status()));
  }
}

TEST_CASE("NCCL identity: one GPU twice is refused per machine and not by the host's name",
          "[collectives][nccl]") {
  const NcclIdentity a = Identity("alpha", "0000:01:00.0");
  const NcclIdentity b = Identity("beta", "0000:01:00.0");
  CHECK_OK(CheckIdentities({a, b}));
  NcclIdentity twin = b;
  twin.host = a.host;
  CHECK_OK(CheckIdentities({a, twin}));
  const absl::Status twice = CheckIdentities({a, b, b});
  CHECK(Contains(twice, "ranks 1 and 2"));
  CHECK(Contains(twice, "0000:01:00.0"));
  CHECK(Contains(twice, "beta"));
}

TEST_CASE("NCCL identity: different versions of NCCL are refused naming both",
          "[collectives][nccl]") {
  NcclIdentity old = Identity("beta", "0000:02:00.0");
  old.version = 22005;
  const absl::Status status = CheckIdentities({Identity("alpha", "0000:01:00.0"), old});
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Contains(status, "22809"));
  CHECK(Contains(status, "22005"));
  CHECK(Contains(status, "rank 1 on beta"));
}

TEST_CASE("NCCL hints: a shared memory folder that is too small is named with its size",
          "[collectives][nccl]") {
  // A file system without any room.
  CHECK(NcclHints(4, "/proc").find("/proc has 0 bytes free, 4 ranks") != std::string::npos);
  CHECK(NcclHints(4, "/proc").find("--shm-size") != std::string::npos);
  CHECK(NcclHints(1, "/proc").find("--shm-size") == std::string::npos);
  CHECK(NcclHints(2, "/nowhere").find("--shm-size") == std::string::npos);
}

class Counter : public Watched {
 public:
  void Check() override { ++checks; }
  std::atomic<int> checks{0};
};

TEST_CASE("Watchdog: it checks all that was added until it was removed", "[collectives][thread]") {
  Watchdog watchdog;
  for (int round = 0; round < 3; ++round) {
    Counter a;
    Counter b;
    watchdog.Add(&a);
    watchdog.Add(&b);
    while (a.checks < 3 || b.checks < 3) std::this_thread::yield();
    watchdog.Remove(&a);
    const int checks = a.checks;
    const int more = b.checks + 3;
    while (b.checks < more) std::this_thread::yield();
    CHECK(a.checks == checks);
    watchdog.Remove(&b);
  }
  Counter never;
  watchdog.Remove(&never);
  CHECK(never.checks == 0);
}

}  // namespace
}  // namespace zero::test
