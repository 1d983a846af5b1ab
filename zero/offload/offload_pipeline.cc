#include "zero/offload/offload_pipeline.h"

#include <algorithm>
#include <cstring>

#include "device/status.h"
#include "io/aligned_bytes.h"
#include "kernels/kernels.h"
#include "zero/stored_as.h"
#include "zero/update_range.h"
#include "zero/weight_store.h"

namespace zero {
namespace {

// What a step that is skipped would have written: the weights as they are. An update writes nothing
// then, and what the slot holds is of another piece.
absl::Status EnqueueUnchanged(const Stream& stream, const StepScalars* scalars, const float* master,
                              StoredAs stored, void* weight, int64_t n) {
  return stream.Enqueue("weights-unchanged", [=] {
    if (scalars->apply == 0) {
      Encode({master, static_cast<size_t>(n)}, stored, weight);
    }
    return absl::OkStatus();
  });
}

// The same elements in pieces of at most `most`.
std::vector<OffloadPiece> PartsOf(const std::vector<OffloadPiece>& pieces, int64_t most) {
  std::vector<OffloadPiece> parts;
  for (const OffloadPiece& piece : pieces) {
    for (int64_t done = 0; done < piece.count; done += most) {
      OffloadPiece part = piece;
      part.first += done;
      part.count = std::min(most, piece.count - done);
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace

OffloadPipeline::OffloadPipeline(const Context& context, OffloadStore* store,
                                 const OffloadStreams* streams)
    : context_(context), store_(store), streams_(streams), scalars_order_(context.device) {
  for (int u = 0; u < context.units(); ++u) {
    gradient_order_.emplace_back(context.device);
    record_order_.emplace_back(context.device);
  }
}

absl::StatusOr<std::unique_ptr<OffloadPipeline>> OffloadPipeline::Create(
    const Context& context, OffloadStore* store, const OffloadStreams* streams) {
  std::unique_ptr<OffloadPipeline> pipeline;
  if (context.plan->config.offload.optimizer == Place::kDevice) return pipeline;
  pipeline.reset(new OffloadPipeline(context, store, streams));
  ZERO_RETURN_IF_ERROR(pipeline->Initialise());
  return pipeline;
}

absl::Status OffloadPipeline::Initialise() {
  ZERO_RETURN_IF_ERROR(
      Allocate(slots_, plan().slot_count, plan().slot_bytes, "slots of offloaded states"));
  ZERO_RETURN_IF_ERROR(Allocate(weight_slots_, plan().weight_slot_count, plan().weight_slot_bytes,
                                "slots of offloaded weights"));
  ZERO_ASSIGN_OR_RETURN(scalars_, context_.device->AllocateHost(OffloadScalarBytes(*context_.plan),
                                                                MemoryCategory::kHostStaging,
                                                                "scalars of offloaded updates"));
  FillGroupMap();
  return absl::OkStatus();
}

absl::Status OffloadPipeline::Allocate(Ring& ring, int64_t count, int64_t bytes, const char* what) {
  ZERO_ASSIGN_OR_RETURN(
      ring.memory, context_.device->AllocateHost(count * bytes, MemoryCategory::kHostSlots, what,
                                                 HostMemoryOf(config().offload)));
  for (int64_t i = 0; i < count; ++i) {
    ring.slots.push_back({ring.memory.bytes_at(i * bytes), Handover(context_.device)});
  }
  return absl::OkStatus();
}

void OffloadPipeline::FillGroupMap() {
  char* const map = scalars_.bytes_at(scalars_.bytes() - plan().group_map_bytes);
  std::memset(scalars_.data(), 0, static_cast<size_t>(scalars_.bytes()));
  for (int u = 0; u < context_.units(); ++u) {
    const UnitLayout& unit = context_.unit(u);
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const Run& run = unit.parameters[p];
      const Segment& where = unit.segments[run.segment];
      const int64_t start = plan().group_map_offsets[u][run.segment];
      if (start < 0) continue;
      const int64_t own = context_.rank() * where.slice;
      const int64_t held = OffloadedStateElements(config(), where);
      for (int64_t first = run.first; first < run.first + run.count; first += kParameterAlignment) {
        if (first < own || first - own >= held) continue;
        map[start + (first - own) / kParameterAlignment] =
            static_cast<char>(context_.model->units[u].parameters[p].group);
      }
    }
  }
}

RecordLayout OffloadPipeline::LayoutOf(int unit, const OffloadPiece& piece) const {
  return MakeRecordLayout(config(), segment(unit, piece), context_.plan->moments, piece.count);
}

absl::Status OffloadPipeline::StoreGradients(int unit, Handover& source,
                                             absl::Span<char* const> slices) {
  const Stream& copy_out = *streams_->copy_out;
  Handover& stored = gradient_order_[unit];
  const Stream& writer = on_disk() ? streams_->disk_write->stream() : copy_out;
  ZERO_RETURN_IF_ERROR(stored.BeginWrite(writer));
  ZERO_RETURN_IF_ERROR(source.BeginRead(copy_out));
  for (const OffloadPiece& piece : plan().pieces[unit]) {
    const int64_t element = SizeOf(StoredType(config(), segment(unit, piece)));
    const char* const from = slices[piece.segment] + piece.first * element;
    const int64_t bytes = piece.count * element;
    char* const record = store_->record(piece);
    if (record != nullptr) {
      ZERO_RETURN_IF_ERROR(context_.device->Copy(copy_out, record, from, bytes));
      continue;
    }
    Slot& slot = slots_.Next();
    ZERO_RETURN_IF_ERROR(slot.order.Write(
        copy_out, [&] { return context_.device->Copy(copy_out, slot.memory, from, bytes); }));
    ZERO_RETURN_IF_ERROR(slot.order.Read(writer, [&] {
      return streams_->disk_write->EnqueueWrite(piece.record, slot.memory, PaddedForDisk(bytes));
    }));
  }
  ZERO_RETURN_IF_ERROR(source.EndRead(copy_out));
  return stored.EndWrite(writer);
}

absl::Status OffloadPipeline::LoadGradients(int unit, absl::Span<char* const> slices) {
  const Stream& copy_in = *streams_->copy_in;
  const Stream& reader = on_disk() ? streams_->disk_read->stream() : copy_in;
  return gradient_order_[unit].Read(reader, [&]() -> absl::Status {
    for (const OffloadPiece& piece : plan().pieces[unit]) {
      const int64_t element = SizeOf(StoredType(config(), segment(unit, piece)));
      char* const to = slices[piece.segment] + piece.first * element;
      const int64_t bytes = piece.count * element;
      const char* const record = store_->record(piece);
      if (record != nullptr) {
        ZERO_RETURN_IF_ERROR(context_.device->Copy(copy_in, to, record, bytes));
        continue;
      }
      Slot& slot = slots_.Next();
      ZERO_RETURN_IF_ERROR(slot.order.Write(reader, [&] {
        return streams_->disk_read->EnqueueRead(piece.record, slot.memory, PaddedForDisk(bytes));
      }));
      ZERO_RETURN_IF_ERROR(slot.order.Read(
          copy_in, [&] { return context_.device->Copy(copy_in, to, slot.memory, bytes); }));
    }
    return absl::OkStatus();
  });
}

absl::Status OffloadPipeline::AwaitGradients(const Stream& stream) {
  for (Handover& order : gradient_order_) ZERO_RETURN_IF_ERROR(order.BeginRead(stream));
  return absl::OkStatus();
}

absl::Status OffloadPipeline::BeginStep(const StepController& step) {
  const Stream& arithmetic = *context_.arithmetic;
  return scalars_order_.Write(arithmetic, [&]() -> absl::Status {
    ZERO_RETURN_IF_ERROR(
        context_.device->Copy(arithmetic, scalars_.data(), step.scalars(), sizeof(StepScalars)));
    return context_.device->Copy(
        arithmetic, scalars_.bytes_at(sizeof(StepScalars)), step.groups(),
        static_cast<int64_t>(config().groups.size() * sizeof(GroupScalars)));
  });
}

absl::Status OffloadPipeline::Update(int unit, WeightStore& weights) {
  if (plan().pieces[unit].empty()) return absl::OkStatus();
  const Stream& optimizer = *streams_->optimizer;
  Handover& order = weights.order(unit);
  // Weights are read, where they are, and written as one use: a piece is written after it was read,
  // since both go through its slot.
  const Stream* weight_reader = streams_->copy_out.get();
  const Stream* weight_writer = streams_->copy_in.get();
  if (weights_place() == Place::kHost) weight_reader = weight_writer = &optimizer;
  if (weights_place() == Place::kNvme) {
    weight_reader = &streams_->disk_read->stream();
    weight_writer = &streams_->disk_write->stream();
  }
  bool reads_weights = false;
  for (const OffloadPiece& piece : plan().pieces[unit]) {
    reads_weights |= UpdateReadsWeight(config(), segment(unit, piece));
  }
  if (reads_weights) ZERO_RETURN_IF_ERROR(order.BeginWrite(*weight_reader));
  ZERO_RETURN_IF_ERROR(order.BeginWrite(*weight_writer));
  const Stream& record_reader = on_disk() ? streams_->disk_read->stream() : optimizer;
  const auto begin_read = [&] { return gradient_order_[unit].BeginRead(record_reader); };
  ZERO_RETURN_IF_ERROR(on_disk() ? begin_read() : await_gradients_.Time(optimizer, begin_read));
  if (on_disk()) {
    ZERO_RETURN_IF_ERROR(record_order_[unit].BeginWrite(streams_->disk_read->stream()));
    ZERO_RETURN_IF_ERROR(record_order_[unit].BeginWrite(streams_->disk_write->stream()));
  }
  ZERO_RETURN_IF_ERROR(scalars_order_.BeginRead(optimizer));
  for (const OffloadPiece& piece : plan().pieces[unit]) {
    ZERO_RETURN_IF_ERROR(UpdatePiece(unit, piece, weights));
  }
  ZERO_RETURN_IF_ERROR(scalars_order_.EndRead(optimizer));
  if (on_disk()) ZERO_RETURN_IF_ERROR(record_order_[unit].EndWrite(streams_->disk_write->stream()));
  ZERO_RETURN_IF_ERROR(gradient_order_[unit].EndRead(record_reader));
  return order.EndWrite(*weight_writer);
}

absl::Status OffloadPipeline::UpdatePiece(int unit, const OffloadPiece& piece,
                                          WeightStore& weights) {
  const Stream& optimizer = *streams_->optimizer;
  if (slots_.slots.empty()) {
    char* const weight =
        store_->weights(unit, piece.segment) + piece.first * SizeOf(segment(unit, piece).dtype);
    return ComputePiece(unit, piece, store_->record(piece), weight);
  }
  Slot& slot = slots_.Next();
  ZERO_RETURN_IF_ERROR(FetchPiece(unit, piece, weights, slot));
  char* const record = on_disk() ? slot.memory : store_->record(piece);
  char* weight = slot.memory + plan().slot_weights;
  if (weights_place() == Place::kHost) {
    weight =
        store_->weights(unit, piece.segment) + piece.first * SizeOf(segment(unit, piece).dtype);
  }
  ZERO_RETURN_IF_ERROR(
      await_piece_.Time(optimizer, [&] { return slot.order.BeginWrite(optimizer); }));
  ZERO_RETURN_IF_ERROR(ComputePiece(unit, piece, record, weight));
  ZERO_RETURN_IF_ERROR(slot.order.EndWrite(optimizer));
  return StorePiece(unit, piece, weights, slot);
}

absl::Status OffloadPipeline::FetchPiece(int unit, const OffloadPiece& piece, WeightStore& weights,
                                         Slot& slot) {
  const Segment& where = segment(unit, piece);
  const int64_t bytes = piece.count * SizeOf(where.dtype);
  char* const weight = slot.memory + plan().slot_weights;
  const bool reads_weight = UpdateReadsWeight(config(), where);
  const bool weight_on_disk = reads_weight && weights_place() == Place::kNvme;
  if (on_disk() || weight_on_disk) {
    ZERO_RETURN_IF_ERROR(slot.order.Write(streams_->disk_read->stream(), [&]() -> absl::Status {
      if (on_disk()) {
        ZERO_RETURN_IF_ERROR(streams_->disk_read->EnqueueRead(piece.record, slot.memory,
                                                              LayoutOf(unit, piece).end()));
      }
      if (!weight_on_disk) return absl::OkStatus();
      return streams_->disk_read->EnqueueRead(
          store_->weights_on_disk(unit, piece.segment) + piece.first * SizeOf(where.dtype), weight,
          PaddedForDisk(bytes));
    }));
  }
  if (!reads_weight || weights_place() != Place::kDevice) return absl::OkStatus();
  const Stream& copy_out = *streams_->copy_out;
  return slot.order.Write(copy_out, [&] {
    return context_.device->Copy(copy_out, weight,
                                 weights.UpdatedAt(unit, piece.segment, piece.first), bytes);
  });
}

absl::Status OffloadPipeline::ComputePiece(int unit, const OffloadPiece& piece, char* record,
                                           char* weight) {
  const Segment& where = segment(unit, piece);
  const RecordLayout layout = LayoutOf(unit, piece);
  const auto section = [&](Section name) { return record + layout.at(name); };
  UpdateMemory memory;
  memory.gradient = section(Section::kGradient);
  memory.weight = weight;
  memory.master = section(Section::kMaster);
  memory.moment1 =
      context_.plan->moments >= 1 ? reinterpret_cast<float*>(section(Section::kMoment1)) : nullptr;
  memory.moment2 =
      context_.plan->moments >= 2 ? reinterpret_cast<float*>(section(Section::kMoment2)) : nullptr;
  memory.groups = reinterpret_cast<const uint8_t*>(
                      scalars_.bytes_at(scalars_.bytes() - plan().group_map_bytes)) +
                  plan().group_map_offsets[unit][piece.segment] + piece.first / kParameterAlignment;
  memory.scalars = scalars_.as<StepScalars>();
  memory.rows = reinterpret_cast<const GroupScalars*>(scalars_.bytes_at(sizeof(StepScalars)));
  const Stream& optimizer = *streams_->optimizer;
  ZERO_RETURN_IF_ERROR(optimizer_.Time(optimizer, [&] {
    return EnqueueUpdate(optimizer, context_, unit, piece.segment, piece.first, piece.count,
                         memory);
  }));
  if (UpdateReadsWeight(config(), where) || weights_place() == Place::kHost) {
    return absl::OkStatus();
  }
  const bool away =
      where.dtype == DType::kBF16 && config().weight_rounding == WeightRounding::kNearestAway;
  return EnqueueUnchanged(optimizer, memory.scalars, static_cast<const float*>(memory.master),
                          away ? StoredAs::kBF16Away : StoredAsOf(where.dtype), weight,
                          piece.count);
}

absl::Status OffloadPipeline::StorePiece(int unit, const OffloadPiece& piece, WeightStore& weights,
                                         Slot& slot) {
  const Segment& where = segment(unit, piece);
  const int64_t bytes = piece.count * SizeOf(where.dtype);
  const char* const weight = slot.memory + plan().slot_weights;
  if (on_disk() || weights_place() == Place::kNvme) {
    ZERO_RETURN_IF_ERROR(slot.order.Read(streams_->disk_write->stream(), [&]() -> absl::Status {
      if (on_disk()) {
        const RecordLayout layout = LayoutOf(unit, piece);
        const int64_t first = layout.at(Section::kMaster);  // the gradient was used up
        ZERO_RETURN_IF_ERROR(streams_->disk_write->EnqueueWrite(
            piece.record + first, slot.memory + first, layout.end() - first));
      }
      if (weights_place() != Place::kNvme) return absl::OkStatus();
      return streams_->disk_write->EnqueueWrite(
          store_->weights_on_disk(unit, piece.segment) + piece.first * SizeOf(where.dtype), weight,
          PaddedForDisk(bytes));
    }));
  }
  if (weights_place() != Place::kDevice) return absl::OkStatus();
  const Stream& copy_in = *streams_->copy_in;
  return slot.order.Read(copy_in, [&] {
    return context_.device->Copy(copy_in, weights.UpdatedAt(unit, piece.segment, piece.first),
                                 weight, bytes);
  });
}

absl::Status OffloadPipeline::LoadWeights(int unit, Handover& order,
                                          absl::Span<char* const> slices) {
  const Stream& copy_in = *streams_->copy_in;
  const bool disk = weights_place() == Place::kNvme && store_->file() != nullptr;
  const Stream& reader = disk ? streams_->disk_weights->stream() : copy_in;
  return order.Read(reader, [&]() -> absl::Status {
    for (int s = 0; s < static_cast<int>(slices.size()); ++s) {
      const Segment& where = context_.unit(unit).segments[s];
      const int64_t elements = OffloadedWeightElements(config(), where);
      const int64_t element = SizeOf(where.dtype);
      if (!disk && elements > 0) {
        ZERO_RETURN_IF_ERROR(context_.device->Copy(copy_in, slices[s], store_->weights(unit, s),
                                                   elements * element));
      }
      for (int64_t first = 0; disk && first < elements; first += config().offload.piece_elements) {
        const int64_t bytes = std::min(config().offload.piece_elements, elements - first) * element;
        Slot& slot = weight_slots_.Next();
        ZERO_RETURN_IF_ERROR(slot.order.Write(reader, [&] {
          return streams_->disk_weights->EnqueueRead(
              store_->weights_on_disk(unit, s) + first * element, slot.memory,
              PaddedForDisk(bytes));
        }));
        ZERO_RETURN_IF_ERROR(slot.order.Read(copy_in, [&] {
          return context_.device->Copy(copy_in, slices[s] + first * element, slot.memory, bytes);
        }));
      }
    }
    return absl::OkStatus();
  });
}

OffloadReport OffloadPipeline::report() const {
  OffloadReport report;
  report.optimizer = optimizer_.seconds();
  report.await_gradients = await_gradients_.seconds();
  report.await_piece = await_piece_.seconds();
  report.await_weights = await_weights_.seconds();
  report.await_gradient_slot = await_gradient_slot_.seconds();
  for (const DiskLane* lane :
       {streams_->disk_read.get(), streams_->disk_write.get(), streams_->disk_weights.get()}) {
    if (lane == nullptr) continue;
    const DiskTraffic traffic = lane->traffic();
    report.bytes_read += traffic.bytes_read;
    report.bytes_written += traffic.bytes_written;
    const bool writes = lane == streams_->disk_write.get();
    (writes ? report.disk_write : report.disk_read) += traffic.busy_seconds;
  }
  report.bytes_to_device = context_.device->bytes_to_device();
  report.bytes_from_device = context_.device->bytes_from_device();
  return report;
}

absl::Status OffloadPipeline::CopyWeights(const WeightStore& weights) {
  if (config().master != MasterKind::kF32) return absl::OkStatus();
  const Stream& arithmetic = *context_.arithmetic;
  std::vector<float> values;
  std::vector<char> raw;
  for (int u = 0; u < context_.units(); ++u) {
    for (const OffloadPiece& piece : PartsOf(plan().pieces[u], kTransferElements)) {
      const DType type = segment(u, piece).dtype;
      if (type == DType::kF32) continue;  // its own master
      values.resize(static_cast<size_t>(piece.count));
      raw.resize(static_cast<size_t>(piece.count * SizeOf(type)));
      ZERO_RETURN_IF_ERROR(context_.device->Copy(arithmetic, raw.data(),
                                                 weights.UpdatedAt(u, piece.segment, piece.first),
                                                 static_cast<int64_t>(raw.size())));
      ZERO_RETURN_IF_ERROR(arithmetic.Synchronize());
      Decode(raw.data(), StoredAsOf(type), absl::MakeSpan(values));
      ZERO_RETURN_IF_ERROR(store_->Write(arithmetic, u, piece.segment, Section::kMaster,
                                         piece.first, piece.count, values.data()));
      ZERO_RETURN_IF_ERROR(arithmetic.Synchronize());
    }
  }
  return absl::OkStatus();
}

}  // namespace zero
