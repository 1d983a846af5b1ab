#include "zero/gradient_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "kernels/kernels.h"
#include "zero/misuse.h"
#include "zero/offload/offload_pipeline.h"

namespace zero {

GradientStore::GradientStore(const Context& context, SegmentBlock block,
                             OrderedReduction* reduction, NormMemory norms,
                             OffloadPipeline* pipeline)
    : context_(context),
      block_(std::move(block)),
      reduction_(reduction),
      norms_(norms),
      pipeline_(pipeline) {
  for (int u = 0; u < context.units(); ++u) {
    order_.emplace_back(context.device);
    std::vector<int>& rows = norm_row_.emplace_back();
    for (const Segment& segment : context.unit(u).segments) {
      rows.push_back(segment.trainable && segment.elements > 0 ? norm_rows_++ : -1);
    }
  }
  progress_.assign(context.units(), Progress::kOpen);
  writer_.resize(context.units());
  stored_.assign(context.units(), false);
}

absl::Status GradientStore::AllocateSlots() {
  const ReductionPlan& plan = context_.plan->reduction;
  if (slots()) {
    for (int64_t bytes : plan.slot_bytes) {
      ZERO_ASSIGN_OR_RETURN(
          Buffer slot,
          context_.device->Allocate(bytes, MemoryCategory::kGradientSlots, "gradient slot"));
      slot_memory_.push_back(std::move(slot));
      slot_order_.emplace_back(context_.device);
    }
    for (int u = 0; u < context_.units(); ++u) written_.emplace_back(context_.device);
  }
  if (context_.plan->send_bytes > 0) {
    ZERO_ASSIGN_OR_RETURN(send_, context_.device->Allocate(context_.plan->send_bytes,
                                                           MemoryCategory::kSend, "send buffer"));
  }
  std::vector<int> last_in_slot(plan.slot_bytes.size(), -1);
  for (int g = 0; g < static_cast<int>(plan.groups.size()); ++g) {
    int& last = last_in_slot[plan.groups[g].slot];
    previous_in_slot_.push_back(last);
    last = g;
  }
  for (int u = 0; u < context_.units(); ++u) {
    std::vector<void*>& data = data_.emplace_back();
    const UnitLayout& layout = context_.unit(u);
    for (const Run& run : layout.parameters) {
      const Segment& segment = layout.segments[run.segment];
      char* const base = segment.trainable ? WrittenAt(u, run.segment) : nullptr;
      data.push_back(base == nullptr ? nullptr : base + run.first * SizeOf(segment.dtype));
    }
  }
  return absl::OkStatus();
}

char* GradientStore::WrittenAt(int unit, int segment) const {
  if (!slots()) return block_.at(unit, segment);
  const ReductionPlan& plan = context_.plan->reduction;
  const int slot = plan.groups[plan.group_of[unit]].slot;
  if (slot_memory_[slot].bytes() == 0) return nullptr;
  return slot_memory_[slot].bytes_at(plan.slot_offsets[unit][segment]);
}

char* GradientStore::UpdatedAt(int unit, int s, int64_t element) const {
  const Segment& segment = context_.unit(unit).segments[s];
  const int64_t bytes = SizeOf(StoredTypeOf(unit, s));
  if (context_.plan->offload.stores_gradients) {
    return block_.at(unit, s) +
           (element - OffloadedStateElements(context_.plan->config, segment)) * bytes;
  }
  char* const start = context_.plan->moment1.sliced ? block_.slice(unit, s, segment.slice, bytes)
                                                    : block_.at(unit, s);
  return start + element * bytes;
}

char* GradientStore::SumsAt(int unit, int segment) const {
  return block_.slice(unit, segment, context_.unit(unit).segments[segment].slice,
                      SizeOf(StoredTypeOf(unit, segment)));
}

absl::Status GradientStore::Leave(int unit) {
  if (pipeline_ == nullptr) return absl::OkStatus();
  std::vector<char*> slices;
  for (int s = 0; s < static_cast<int>(norm_row_[unit].size()); ++s) {
    slices.push_back(has_gradient(unit, s) ? SumsAt(unit, s) : nullptr);
  }
  return pipeline_->StoreGradients(unit, order_[unit], slices);
}

absl::Status GradientStore::EndSlot(const ReductionGroup& group, const Stream& reader) {
  return slot_order_[group.slot].EndWrite(reader);
}

absl::Status GradientStore::BeginWriting(int unit, const Stream& stream) {
  if (slots()) {
    const ReductionPlan& plan = context_.plan->reduction;
    ZERO_RETURN_IF_ERROR(slot_order_[plan.groups[plan.group_of[unit]].slot].BeginRead(stream));
  }
  return written_order(unit).BeginWrite(stream);
}

absl::Status GradientStore::EndWriting(int unit) {
  const std::shared_ptr<const Stream> writer = writer_[unit].lock();
  return writer == nullptr ? absl::OkStatus() : written_order(unit).EndWrite(*writer);
}

void GradientStore::BeginPass(bool last) {
  last_pass_ = last;
  next_ = context_.units() - 1;
  std::fill(progress_.begin(), progress_.end(), Progress::kOpen);
  reported_in_group_.assign(context_.plan->reduction.groups.size(), 0);
}

absl::Status GradientStore::FinishPass() {
  ZERO_RETURN_IF_ERROR(RequireReduced(0));
  while (next_ >= 0) ZERO_RETURN_IF_ERROR(PassOver(next_));
  return absl::OkStatus();
}

absl::Status GradientStore::WaitForUses(const Stream& stream) {
  for (int u = 0; u < context_.units(); ++u) ZERO_RETURN_IF_ERROR(EndWriting(u));
  for (Handover& order : order_) ZERO_RETURN_IF_ERROR(order.BeginWrite(stream));
  for (Handover& order : written_) ZERO_RETURN_IF_ERROR(order.BeginWrite(stream));
  for (Handover& order : slot_order_) ZERO_RETURN_IF_ERROR(order.BeginWrite(stream));
  return absl::OkStatus();
}

void GradientStore::EndStep() {
  std::fill(stored_.begin(), stored_.end(), false);
  last_pass_ = false;
}

absl::StatusOr<Gradients> GradientStore::Acquire(int unit, const Stream& stream) {
  const bool resident = context_.model->units[unit].resident;
  if (context_.unit(unit).trainable()) {
    if (progress_[unit] == Progress::kReported) {
      return Misuse(absl::FailedPreconditionError(
          absl::StrCat("AcquireGradients of unit '", context_.name(unit),
                       "': it was already reduced, or passed over, in this pass")));
    }
    if (progress_[unit] == Progress::kAcquired && !resident) {
      return Misuse(absl::FailedPreconditionError(
          absl::StrCat("AcquireGradients of unit '", context_.name(unit),
                       "': it is acquired; a unit used more than once must be resident")));
    }
  } else {
    // Nothing is written, but the trainer may look at the addresses, all null.
    ZERO_RETURN_IF_ERROR(EndWriting(unit));
    writer_[unit] = stream.reference();
    return Gradients{data_[unit], false};
  }
  Gradients gradients{data_[unit], progress_[unit] == Progress::kAcquired};
  if (slots()) {
    ZERO_RETURN_IF_ERROR(FreeSlot(unit));
  } else {
    gradients.accumulate = gradients.accumulate || stored_[unit];
  }
  ZERO_RETURN_IF_ERROR(EndWriting(unit));  // a resident unit's use before
  const auto begin = [&] { return BeginWriting(unit, stream); };
  ZERO_RETURN_IF_ERROR(pipeline_ == nullptr ? begin()
                                            : pipeline_->await_gradient_slot().Time(stream, begin));
  if (!gradients.accumulate && context_.plan->config.poison_slots) {
    const UnitLayout& layout = context_.unit(unit);
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      if (norm_row_[unit][s] < 0) continue;
      ZERO_RETURN_IF_ERROR(
          context_.device->Fill(stream, WrittenAt(unit, s), 0xFF,
                                layout.segments[s].elements * SizeOf(layout.segments[s].dtype)));
    }
  }
  progress_[unit] = Progress::kAcquired;
  writer_[unit] = stream.reference();
  return gradients;
}

absl::Status GradientStore::FreeSlot(int unit) {
  const ReductionPlan& plan = context_.plan->reduction;
  const int before = previous_in_slot_[plan.group_of[unit]];
  if (before < 0) return absl::OkStatus();
  // What used the slot before has to go out first. Units that nobody wrote are passed over.
  ZERO_RETURN_IF_ERROR(RequireReduced(plan.groups[before].units.back()));
  const int units = static_cast<int>(plan.groups[before].units.size());
  while (reported_in_group_[before] < units) ZERO_RETURN_IF_ERROR(PassOver(next_));
  return absl::OkStatus();
}

absl::Status GradientStore::RequireReduced(int last) const {
  for (int u = next_; u >= last; --u) {
    if (progress_[u] != Progress::kAcquired) continue;
    return Misuse(absl::FailedPreconditionError(
        absl::StrCat("the gradients of unit '", context_.name(u),
                     "' are acquired but not reduced: call ReduceGradients in the reverse order of "
                     "units, before the next pass and Step")));
  }
  return absl::OkStatus();
}

absl::Status GradientStore::PassOver(int unit) {
  const UnitLayout& layout = context_.unit(unit);
  if (!layout.trainable()) {
    next_ = unit - 1;
    return absl::OkStatus();
  }
  if (slots() || !stored_[unit]) {
    const Stream& stream = *context_.arithmetic;
    ZERO_RETURN_IF_ERROR(BeginWriting(unit, stream));
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      if (norm_row_[unit][s] < 0) continue;
      ZERO_RETURN_IF_ERROR(
          context_.device->Fill(stream, WrittenAt(unit, s), 0,
                                layout.segments[s].elements * SizeOf(layout.segments[s].dtype)));
    }
    ZERO_RETURN_IF_ERROR(written_order(unit).EndWrite(stream));
  }
  return MarkReported(unit);
}

std::vector<ByteRange> GradientStore::ZeroedRanges(int unit,
                                                   absl::Span<const int> unwritten) const {
  const UnitLayout& layout = context_.unit(unit);
  std::vector<ByteRange> ranges;
  const auto add = [&](const Run& run) {
    const Segment& segment = layout.segments[run.segment];
    if (!segment.trainable || run.count == 0) return;
    const int64_t element = SizeOf(segment.dtype);
    ranges.push_back({WrittenAt(unit, run.segment) + run.first * element, run.count * element});
  };
  for (const Run& gap : layout.gaps) add(gap);
  for (int parameter : unwritten) add(layout.parameters[parameter]);
  return ranges;
}

absl::Status GradientStore::Reduce(int unit, const Stream& stream,
                                   absl::Span<const int> unwritten) {
  const UnitLayout& layout = context_.unit(unit);
  const int parameters = static_cast<int>(layout.parameters.size());
  for (int parameter : unwritten) {
    if (parameter >= 0 && parameter < parameters) continue;
    return Misuse(absl::InvalidArgumentError(
        absl::StrCat("ReduceGradients of unit '", context_.name(unit), "': unwritten parameter ",
                     parameter, " does not exist; the unit has ", parameters)));
  }
  if (!layout.trainable()) {
    ZERO_RETURN_IF_ERROR(EndWriting(unit));
    writer_[unit].reset();
    return absl::OkStatus();
  }
  if (progress_[unit] != Progress::kAcquired) {
    return Misuse(absl::FailedPreconditionError(absl::StrCat(
        "ReduceGradients of unit '", context_.name(unit),
        progress_[unit] == Progress::kReported
            ? "': it was already reduced, or passed over, in this pass"
            : "': its gradients are not acquired; leave the unit out to count it as zeros")));
  }
  for (int u = next_; u > unit; --u) {
    if (progress_[u] == Progress::kAcquired) {
      return Misuse(absl::FailedPreconditionError(absl::StrCat(
          "ReduceGradients of unit '", context_.name(unit), "': unit '", context_.name(u),
          "' comes before it in backward, and is acquired but not reduced")));
    }
  }
  while (next_ > unit) ZERO_RETURN_IF_ERROR(PassOver(next_));
  if (writer_[unit].lock() != stream.reference().lock()) {
    ZERO_RETURN_IF_ERROR(EndWriting(unit));
    ZERO_RETURN_IF_ERROR(BeginWriting(unit, stream));
  }
  // Added to, the block keeps its zeroed gaps, and an unwritten parameter what it had.
  if (slots() || !stored_[unit]) {
    ZERO_RETURN_IF_ERROR(ZeroRanges(stream, ZeroedRanges(unit, unwritten)));
  }
  ZERO_RETURN_IF_ERROR(written_order(unit).EndWrite(stream));
  writer_[unit].reset();
  return MarkReported(unit);
}

absl::Status GradientStore::MarkReported(int unit) {
  progress_[unit] = Progress::kReported;
  next_ = unit - 1;
  const ReductionPlan& plan = context_.plan->reduction;
  const int group = plan.group_of[unit];
  if (++reported_in_group_[group] < static_cast<int>(plan.groups[group].units.size())) {
    return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(FinishGroup(plan.groups[group]));
  for (int u : plan.groups[group].units) stored_[u] = true;
  return last_pass_ && after_group_ ? after_group_() : absl::OkStatus();
}

bool GradientStore::Complete(int unit) const {
  if (!last_pass_ || !context_.unit(unit).trainable()) return false;
  const ReductionPlan& plan = context_.plan->reduction;
  const int group = plan.group_of[unit];
  return reported_in_group_[group] == static_cast<int>(plan.groups[group].units.size());
}

absl::Status GradientStore::Predivide(const ReductionGroup& group, bool from_slots,
                                      const Stream& reader) {
  const double factor = context_.plan->config.gradient_predivide_factor;
  if (factor == 1) return absl::OkStatus();
  for (int u : group.units) {
    for (int s = 0; s < static_cast<int>(norm_row_[u].size()); ++s) {
      if (norm_row_[u][s] < 0) continue;
      const Segment& segment = context_.unit(u).segments[s];
      ZERO_RETURN_IF_ERROR(Scale(reader, from_slots ? WrittenAt(u, s) : block_.at(u, s),
                                 from_slots ? segment.dtype : StoredTypeOf(u, s),
                                 static_cast<float>(1 / factor), segment.elements));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const char*> GradientStore::Convert(const Stream& reader, const Segment& segment,
                                                   const char* from, DType source, DType sent,
                                                   int64_t columns, int64_t offset) {
  // On the stream of the exchange, which has read the buffer before it is written again.
  char* const to = send_.bytes_at(offset);
  for (int64_t r = 0; r < context_.group->size(); ++r) {
    ZERO_RETURN_IF_ERROR(Cast(reader, from + r * segment.slice * SizeOf(source), source,
                              to + r * columns * SizeOf(sent), sent, columns));
  }
  return to;
}

absl::Status GradientStore::RunReduction(const ReductionGroup& group, bool from_slots,
                                         bool accumulate) {
  const Stream& communication = *context_.communication;
  const Stream& arithmetic = *context_.arithmetic;
  const int ranks = context_.group->size();
  const Stream& reader = reduction_->ReaderOf(communication, arithmetic);

  const auto source = [&](int u) -> Handover& { return from_slots ? written_[u] : order_[u]; };
  for (int u : group.units) ZERO_RETURN_IF_ERROR(source(u).BeginRead(reader));
  // Otherwise each pass was checked when it was added to the block.
  if (from_slots || !slots()) {
    for (int u : group.units) ZERO_RETURN_IF_ERROR(CheckWritten(u, reader));
  }
  ZERO_RETURN_IF_ERROR(Predivide(group, from_slots, reader));
  for (int u : group.units) ZERO_RETURN_IF_ERROR(order_[u].BeginWrite(arithmetic));

  std::vector<ReductionPiece> call;
  int64_t room = context_.plan->reduction.call_bytes;
  const auto flush = [&]() -> absl::Status {
    if (call.empty()) return absl::OkStatus();
    ZERO_RETURN_IF_ERROR(reduction_->Run(communication, arithmetic, kReduceGradients, call));
    call.clear();
    room = context_.plan->reduction.call_bytes;
    return absl::OkStatus();
  };
  for (int u : group.units) {
    const UnitLayout& layout = context_.unit(u);
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      const Segment& segment = layout.segments[s];
      if (norm_row_[u][s] < 0) continue;
      const DType stored = StoredTypeOf(u, s);
      const DType source_type = from_slots ? segment.dtype : stored;
      const DType sent = ranks == 1 ? source_type : SentType(context_.plan->config, source_type);
      const char* const sent_from = from_slots ? WrittenAt(u, s) : block_.at(u, s);
      char* const own = SumsAt(u, s);
      for (int64_t first = 0; first < segment.slice;) {
        const int64_t fit = room / (ranks * SizeOf(sent)) / kParameterAlignment;
        const int64_t columns = std::min(segment.slice - first, fit * kParameterAlignment);
        if (columns == 0) {
          ZERO_RETURN_IF_ERROR(flush());
          continue;
        }
        ReductionPiece piece;
        piece.send = sent_from + first * SizeOf(source_type);
        piece.slice = segment.slice;
        if (sent != source_type) {
          ZERO_ASSIGN_OR_RETURN(
              piece.send,
              Convert(reader, segment, sent_from + first * SizeOf(source_type), source_type, sent,
                      columns, context_.plan->reduction.call_bytes - room));
          piece.slice = columns;
        }
        piece.columns = columns;
        piece.type = sent;
        piece.out = own + first * SizeOf(stored);
        piece.out_type = stored;
        piece.accumulate = accumulate;
        call.push_back(piece);
        room -= columns * ranks * SizeOf(sent);
        first += columns;
      }
    }
  }
  ZERO_RETURN_IF_ERROR(flush());
  if (from_slots) ZERO_RETURN_IF_ERROR(EndSlot(group, reader));
  for (int u : group.units) ZERO_RETURN_IF_ERROR(source(u).EndRead(reader));
  for (int u : group.units) ZERO_RETURN_IF_ERROR(order_[u].EndWrite(arithmetic));
  return absl::OkStatus();
}

absl::Status GradientStore::CheckWritten(int unit, const Stream& reader) {
  if (norms_.written == nullptr) return absl::OkStatus();
  for (int s = 0; s < static_cast<int>(norm_row_[unit].size()); ++s) {
    if (norm_row_[unit][s] < 0) continue;
    ZERO_RETURN_IF_ERROR(norms_.written->Check(reader, unit, s, WrittenAt(unit, s)));
  }
  return absl::OkStatus();
}

absl::Status GradientStore::EnqueueNorms(int unit) {
  const UnitLayout& layout = context_.unit(unit);
  return order_[unit].Read(*context_.arithmetic, [&]() -> absl::Status {
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      if (norm_row_[unit][s] < 0) continue;
      const DType type = StoredTypeOf(unit, s);
      const int64_t slice = layout.segments[s].slice;
      ZERO_RETURN_IF_ERROR(Norm(*context_.arithmetic, SumsAt(unit, s), type, slice, norms_.scratch,
                                norms_.partials + norm_row_[unit][s]));
    }
    return absl::OkStatus();
  });
}

}  // namespace zero
