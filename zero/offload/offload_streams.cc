#include "zero/offload/offload_streams.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {

absl::StatusOr<OffloadStreams> OffloadStreams::Create(const Context& context,
                                                      const OffloadStore& store) {
  OffloadStreams streams;
  Device* const device = context.device;
  const int rank = context.rank();
  const auto name = [rank](const char* what) { return absl::StrCat(what, "-", rank); };
  ZERO_ASSIGN_OR_RETURN(streams.copy_out, device->CreateStream(name("copy-out")));
  ZERO_ASSIGN_OR_RETURN(streams.copy_in, device->CreateStream(name("copy-in")));
  ZERO_ASSIGN_OR_RETURN(streams.optimizer, device->CreateHostStream(name("optimizer")));
  if (store.file() == nullptr) return streams;
  const auto make = [&](const char* what) -> absl::StatusOr<std::unique_ptr<DiskLane>> {
    ZERO_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device->CreateHostStream(name(what)));
    DiskLane::Options options;
    options.on_failure = [group = context.group, rank, failed = store.failed(),
                          failure = store.failure()](const absl::Status& status) {
      const absl::Status named(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
      failure->Add(named);
      std::atomic_ref<int32_t>(*failed).store(1, std::memory_order_release);
      group->Abort(named);
    };
    return DiskLane::Create(std::move(stream), store.file(), std::move(options));
  };
  ZERO_ASSIGN_OR_RETURN(streams.disk_read, make("disk-read"));
  ZERO_ASSIGN_OR_RETURN(streams.disk_write, make("disk-write"));
  if (context.plan->config.offload.parameters == Place::kNvme) {
    ZERO_ASSIGN_OR_RETURN(streams.disk_weights, make("disk-weights"));
  }
  return streams;
}

DiskTraffic OffloadStreams::disk_traffic() const {
  DiskTraffic all;
  for (const std::unique_ptr<DiskLane>* lane : {&disk_read, &disk_write, &disk_weights}) {
    if (*lane == nullptr) continue;
    const DiskTraffic traffic = (*lane)->traffic();
    all.bytes_read += traffic.bytes_read;
    all.bytes_written += traffic.bytes_written;
    all.busy_seconds += traffic.busy_seconds;
  }
  return all;
}

std::vector<const Stream*> OffloadStreams::all() const {
  std::vector<const Stream*> streams;
  // The disk's first: a failure there is the one that the others repeat.
  for (const std::unique_ptr<DiskLane>* lane : {&disk_read, &disk_write, &disk_weights}) {
    if (*lane != nullptr) streams.push_back(&(*lane)->stream());
  }
  for (const std::unique_ptr<Stream>* stream : {&copy_out, &copy_in, &optimizer}) {
    if (*stream != nullptr) streams.push_back(stream->get());
  }
  return streams;
}

}  // namespace zero
