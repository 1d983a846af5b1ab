#include "tests/collectives/nccl_test_util.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/standin/cudart.h"

namespace zero::test {
namespace {

absl::Status RunRank(NcclWorld& world, int r,
                     const std::function<absl::Status(const NcclTestRank&)>& body) {
  CudaDevice::Options options;
  options.id = world.gpus[r];
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device, CudaDevice::Create(options));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> group,
                        CreateNcclGroup(device.get(), world.channels.channel(r), world.options));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                        device->CreateStream(absl::StrCat("rank-", r)));
  const absl::Status status = body(NcclTestRank{r, group.get(), device.get(), stream.get()});
  if (!status.ok()) group->Abort(status);
  const absl::Status ran = stream->Synchronize();
  return status.ok() ? ran : status;
}

}  // namespace

std::vector<absl::Status> OnEachNcclRank(
    NcclWorld& world, const std::function<absl::Status(const NcclTestRank&)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(world.size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world.size; ++r) {
    threads.emplace_back([&, r] {
      statuses[r] = RunRank(world, r, body);
      // A rank that has no group cannot abort it.
      if (!statuses[r].ok()) world.channels.channel(r)->Abort(statuses[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

NcclStandin::NcclStandin(int gpus) {
  standin::CudartOptions options;
  options.devices = gpus;
  standin::Reset(options);
  standin::ResetNccl();
}

NcclStandin::~NcclStandin() {
  CHECK(standin::NcclViolations() == std::vector<std::string>());
  CHECK(standin::Violations() == std::vector<std::string>());
  CHECK(standin::LiveObjects() == standin::Live());
  standin::ResetNccl();
}

absl::StatusOr<Buffer> ToDevice(const NcclTestRank& rank, const std::vector<uint8_t>& bytes) {
  const auto n = static_cast<int64_t>(bytes.size());
  ZERO_ASSIGN_OR_RETURN(Buffer buffer,
                        rank.device->Allocate(n, MemoryCategory::kOther, "test memory"));
  ZERO_ASSIGN_OR_RETURN(const Buffer host,
                        rank.device->AllocateHost(n, MemoryCategory::kOther, "test memory"));
  std::copy(bytes.begin(), bytes.end(), host.as<uint8_t>());
  ZERO_RETURN_IF_ERROR(rank.device->Copy(*rank.stream, buffer.data(), host.data(), n));
  ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
  return buffer;
}

absl::StatusOr<std::vector<uint8_t>> FromDevice(const NcclTestRank& rank, const Buffer& buffer) {
  ZERO_ASSIGN_OR_RETURN(const Buffer host,
                        rank.device->AllocateHost(buffer.bytes(), MemoryCategory::kOther, "copy"));
  ZERO_RETURN_IF_ERROR(rank.device->Copy(*rank.stream, host.data(), buffer.data(), buffer.bytes()));
  ZERO_RETURN_IF_ERROR(rank.stream->Synchronize());
  return std::vector<uint8_t>(host.as<uint8_t>(), host.as<uint8_t>() + host.bytes());
}

absl::Status GatherOnNccl(const NcclTestRank& rank, const char* name, int64_t bytes) {
  const auto n = static_cast<size_t>(bytes);
  ZERO_ASSIGN_OR_RETURN(
      const Buffer send,
      ToDevice(rank, std::vector<uint8_t>(n, static_cast<uint8_t>(rank.index + 1))));
  ZERO_ASSIGN_OR_RETURN(const Buffer receive,
                        ToDevice(rank, std::vector<uint8_t>(n * rank.group->size())));
  const AllGatherPiece piece{send.data(), receive.data(), bytes, bytes};
  absl::Status status = rank.group->AllGather(*rank.stream, name, {&piece, 1});
  const absl::StatusOr<std::vector<uint8_t>> received = FromDevice(rank, receive);
  ZERO_RETURN_IF_ERROR(status);
  ZERO_RETURN_IF_ERROR(rank.group->Health());
  ZERO_RETURN_IF_ERROR(received.status());
  for (size_t i = 0; i < received->size(); ++i) {
    if ((*received)[i] != i / n + 1) return absl::InternalError("gathered wrong bytes");
  }
  return absl::OkStatus();
}

std::string FirstNcclError(const std::vector<absl::Status>& statuses) {
  for (size_t r = 0; r < statuses.size(); ++r) {
    if (!statuses[r].ok()) return absl::StrCat("rank ", r, ": ", statuses[r].ToString());
  }
  return "";
}

}  // namespace zero::test
