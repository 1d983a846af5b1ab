#include "zero/offload/offload_traffic.h"

#include <algorithm>

#include "io/aligned_bytes.h"
#include "kernels/step_scalars.h"
#include "zero/plan.h"

namespace zero {
namespace {

OffloadTraffic PieceTraffic(const Config& config, const Segment& segment, const OffloadPiece& piece,
                            const OffloadPlan& plan, int moments, int64_t micro_batches) {
  const bool on_disk = config.offload.optimizer == Place::kNvme;
  const int64_t gradient = piece.count * SizeOf(StoredType(config, segment));
  const int64_t weight = piece.count * SizeOf(segment.dtype);
  const int64_t out = plan.stores_gradients ? micro_batches : 1;
  const int64_t back = out - 1;
  OffloadTraffic traffic;
  traffic.from_device = out * gradient;
  traffic.to_device = back * gradient;
  if (on_disk) {
    const RecordLayout record = MakeRecordLayout(config, segment, moments, piece.count);
    traffic.disk_written =
        out * PaddedForDisk(gradient) + record.end() - record.at(Section::kMaster);
    traffic.disk_read = back * PaddedForDisk(gradient) + record.end();
  }
  const bool reads_weight = UpdateReadsWeight(config, segment);
  if (config.offload.parameters == Place::kDevice) {
    traffic.to_device += weight;
    if (reads_weight) traffic.from_device += weight;
  } else if (config.offload.parameters == Place::kNvme) {
    traffic.disk_written += PaddedForDisk(weight);
    if (reads_weight) traffic.disk_read += PaddedForDisk(weight);
  }
  return traffic;
}

}  // namespace

OffloadTraffic& OffloadTraffic::operator+=(const OffloadTraffic& other) {
  to_device += other.to_device;
  from_device += other.from_device;
  disk_read += other.disk_read;
  disk_written += other.disk_written;
  return *this;
}

OffloadTraffic GatherTraffic(const Config& config, const UnitLayout& unit) {
  OffloadTraffic traffic;
  const int64_t piece = config.offload.piece_elements;
  for (const Segment& segment : unit.segments) {
    const int64_t elements = OffloadedWeightElements(config, segment);
    const int64_t element = SizeOf(segment.dtype);
    traffic.to_device += elements * element;
    if (config.offload.parameters != Place::kNvme) continue;
    for (int64_t first = 0; first < elements; first += piece) {
      traffic.disk_read += PaddedForDisk(std::min(piece, elements - first) * element);
    }
  }
  return traffic;
}

OffloadTraffic UpdateTraffic(const Config& config, const Layout& layout, const OffloadPlan& plan,
                             int moments, int64_t micro_batches) {
  OffloadTraffic traffic;
  if (config.offload.optimizer == Place::kDevice) return traffic;
  traffic.from_device = static_cast<int64_t>(sizeof(StepScalars)) +
                        static_cast<int64_t>(config.groups.size() * sizeof(GroupScalars));
  for (size_t u = 0; u < layout.units.size(); ++u) {
    for (const OffloadPiece& piece : plan.pieces[u]) {
      traffic += PieceTraffic(config, layout.units[u].segments[piece.segment], piece, plan, moments,
                              micro_batches);
    }
  }
  return traffic;
}

}  // namespace zero
