#include "zero/agreement.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collectives/sha256.h"
#include "device/status.h"
#include "zero/plan.h"

namespace zero {
namespace {

// Of one rank: all its lines, some of the first ones, or one, whose length `lines` is then.
struct Record {
  uint64_t lines = 0;  // or bytes
  char hash[32] = {};
  char text[472] = {};
};

// Records pass through the device's memory, as everything does that ranks exchange.
class Exchange {
 public:
  static absl::StatusOr<std::unique_ptr<Exchange>> Create(Device* device, ProcessGroup* group) {
    std::unique_ptr<Exchange> made(new Exchange(device, group));
    const auto bytes = static_cast<int64_t>(sizeof(Record)) * (group->size() + 1);
    const char* const what = "comparison of the ranks' configurations";
    ZERO_ASSIGN_OR_RETURN(made->memory_, device->Allocate(bytes, MemoryCategory::kStaging, what));
    ZERO_ASSIGN_OR_RETURN(made->staging_,
                          device->AllocateHost(bytes, MemoryCategory::kHostStaging, what));
    ZERO_ASSIGN_OR_RETURN(made->stream_,
                          device->CreateStream(absl::StrCat("create-", group->rank())));
    return made;
  }

  // Every rank's record.
  absl::StatusOr<std::vector<Record>> Run(const Record& own) {
    constexpr int64_t kBytes = sizeof(Record);
    Record* const device = memory_.as<Record>();
    Record* const host = staging_.as<Record>();
    const int size = group_->size();
    std::memcpy(host, &own, sizeof(Record));
    ZERO_RETURN_IF_ERROR(device_->Copy(*stream_, device, host, kBytes));
    const AllGatherPiece piece{device, device + 1, kBytes, kBytes};
    ZERO_RETURN_IF_ERROR(group_->AllGather(*stream_, kStateTransfer, {&piece, 1}));
    ZERO_RETURN_IF_ERROR(device_->Copy(*stream_, host + 1, device + 1, size * kBytes));
    ZERO_RETURN_IF_ERROR(stream_->Synchronize());
    // Where a failed group lets its streams go on, what arrived may be anything.
    ZERO_RETURN_IF_ERROR(group_->Health());
    std::vector<Record> records(static_cast<size_t>(size));
    std::memcpy(records.data(), host + 1, records.size() * sizeof(Record));
    return records;
  }

  // The largest count, at most `most`, whose records do not differ: none of a smaller one does.
  absl::StatusOr<uint64_t> SameBefore(uint64_t most,
                                      absl::FunctionRef<bool(const std::vector<Record>&)> differ,
                                      absl::FunctionRef<Record(uint64_t count)> record) {
    uint64_t same = 0;
    while (same < most) {
      const uint64_t middle = same + (most - same + 1) / 2;
      ZERO_ASSIGN_OR_RETURN(const std::vector<Record> first, Run(record(middle)));
      if (differ(first)) {
        most = middle - 1;
      } else {
        same = middle;
      }
    }
    return same;
  }

 private:
  Exchange(Device* device, ProcessGroup* group) : device_(device), group_(group) {}

  Device* const device_;
  ProcessGroup* const group_;
  Buffer memory_;
  Buffer staging_;
  std::unique_ptr<Stream> stream_;  // ends before its memory does
};

// Of the first `count` lines.
Record RecordOf(const std::vector<std::string>& lines, size_t count) {
  Record record;
  record.lines = lines.size();
  const auto end = lines.begin() + static_cast<std::ptrdiff_t>(std::min(count, lines.size()));
  const std::string hash = Sha256(absl::StrJoin(lines.begin(), end, "\n"));
  std::memcpy(record.hash, hash.data(), sizeof(record.hash));
  return record;
}

bool SameHash(const Record& a, const Record& b) {
  return std::memcmp(a.hash, b.hash, sizeof(a.hash)) == 0;
}

// Puts into the record what fits of a line around byte `at`, with ... where more was cut off.
void Show(const std::string& line, uint64_t at, Record& record) {
  constexpr char kMore[] = "...";
  constexpr size_t kBefore = 100;  // bytes that show where in the line it is
  std::string text = line;
  if (line.size() > sizeof(record.text)) {
    const size_t begin = at > kBefore ? at - kBefore : 0;
    const size_t room = sizeof(record.text) - (begin > 0 ? 2 : 1) * strlen(kMore);
    text = absl::StrCat(begin > 0 ? kMore : "", line.substr(begin, room),
                        begin + room < line.size() ? kMore : "");
  }
  std::memcpy(record.text, text.data(), std::min(text.size(), sizeof(record.text)));
  std::fill(record.text + text.size(), std::end(record.text), '\0');
}

std::string TextOf(const Record& record) {
  return std::string(record.text, strnlen(record.text, sizeof(record.text)));
}

}  // namespace

std::vector<std::string> AgreementLines(const Config& config, const Model& model) {
  std::vector<std::string> lines;
  const auto add = [&](const auto&... parts) { lines.push_back(absl::StrCat(parts...)); };
  // As many digits as tell any two numbers apart.
  const auto number = [](double value) { return absl::StrFormat("%.17g", value); };
  // Functions cannot be compared; some of their values can. The last digits may be those of the
  // machine's library, which is no matter where each weight is updated on one rank only.
  const auto sample = [&](double value) {
    return absl::StrFormat("%.*g", config.stage == 0 ? 17 : 12, value);
  };
  const auto add_schedule = [&](const char* name, const Schedule& schedule, double constant) {
    if (!schedule) return add(name, ": ", number(constant));
    for (const int64_t count : {1, 2, 10, 100, 1000, 10'000, 100'000, 1'000'000}) {
      add(name, "(", count, "): ", sample(schedule(count)));
    }
  };
  add("stage: ", config.stage);
  add("optimizer: ", Name(config.optimizer));
  add_schedule("learning_rate", config.schedule, config.learning_rate);
  add_schedule("beta1", config.beta1_schedule, config.beta1);
  add("beta2: ", number(config.beta2));
  add("epsilon: ", number(config.epsilon));
  add("bias_correction: ", config.bias_correction);
  add("momentum: ", number(config.momentum));
  add("nesterov: ", config.nesterov);
  for (size_t g = 0; g < config.groups.size(); ++g) {
    add("groups[", g, "].learning_rate_factor: ", number(config.groups[g].learning_rate_factor));
    add("groups[", g, "].weight_decay: ", number(config.groups[g].weight_decay));
  }
  add_schedule("clip_norm", config.clip_schedule, config.clip_norm);
  add("loss_scale.kind: ", Name(config.loss_scale.kind));
  add("loss_scale.scale: ", number(config.loss_scale.scale));
  add("loss_scale.window: ", config.loss_scale.window);
  add("loss_scale.hysteresis: ", config.loss_scale.hysteresis);
  add("loss_scale.consecutive_hysteresis: ", config.loss_scale.consecutive_hysteresis);
  add("loss_scale.minimum: ", number(config.loss_scale.minimum));
  add("max_consecutive_skips: ", config.max_consecutive_skips);
  add("check_gradients: ", config.check_gradients);
  add("master: ", Name(config.master));
  add("weight_rounding: ", Name(config.weight_rounding));
  add("rounding_seed: ", config.rounding_seed);
  add("accumulation: ", Name(config.accumulation));
  add("communication: ",
      config.communication.has_value() ? Name(*config.communication) : "as written");
  add("gradient_predivide_factor: ", number(config.gradient_predivide_factor));
  add("reduce_bucket_size: ", config.reduce_bucket_size);
  add("prefetch: ", config.prefetch);
  add("reduction: ", Name(config.reduction));
  for (const Unit& unit : model.units) {
    add("unit '", unit.name, "': ", unit.resident ? "resident" : "not resident");
    for (const Parameter& p : unit.parameters) {
      add("parameter '", p.name, "' of unit '", unit.name, "': ", Name(p.dtype), " [",
          absl::StrJoin(p.shape, ", "), "], group ", p.group,
          p.trainable ? ", trainable" : ", frozen", p.aliases.empty() ? "" : ", also ",
          absl::StrJoin(p.aliases, ", "));
    }
  }
  return lines;
}

absl::Status CheckAgreement(const std::vector<std::string>& lines, Device* device,
                            ProcessGroup* group) {
  if (group->size() == 1) return absl::OkStatus();
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> exchange, Exchange::Create(device, group));
  ZERO_ASSIGN_OR_RETURN(const std::vector<Record> all,
                        exchange->Run(RecordOf(lines, lines.size())));
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const Record& record) { return !SameHash(record, all[0]); });
  if (other == all.end()) return absl::OkStatus();
  const auto rank = static_cast<size_t>(other - all.begin());

  const auto differ = [&](const std::vector<Record>& records) {
    return !SameHash(records[0], records[rank]);
  };
  const uint64_t fewest = std::min(all[0].lines, all[rank].lines);
  ZERO_ASSIGN_OR_RETURN(
      const uint64_t same,
      exchange->SameBefore(fewest, differ, [&](uint64_t count) { return RecordOf(lines, count); }));
  const std::string line = same < lines.size() ? lines[same] : "nothing more";
  Record own;
  own.lines = line.size();
  Show(line, 0, own);
  ZERO_ASSIGN_OR_RETURN(std::vector<Record> texts, exchange->Run(own));
  const uint64_t longest = std::max(texts[0].lines, texts[rank].lines);
  if (longest > sizeof(own.text)) {
    // What differs may be further on.
    const uint64_t shortest = std::min(texts[0].lines, texts[rank].lines);
    ZERO_ASSIGN_OR_RETURN(const uint64_t at,
                          exchange->SameBefore(shortest, differ, [&](uint64_t count) {
                            return RecordOf({line.substr(0, count)}, 1);
                          }));
    Show(line, at, own);
    ZERO_ASSIGN_OR_RETURN(texts, exchange->Run(own));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Create: ranks 0 and ", rank, " differ: '", TextOf(texts[0]), "' on rank 0, '",
                   TextOf(texts[rank]), "' on rank ", rank, "; they must be the same"));
}

}  // namespace zero
