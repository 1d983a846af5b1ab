#include "zero/agreement.h"

#include <algorithm>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collectives/sha256.h"
#include "device/status.h"
#include "zero/plan.h"
#include "zero/rank_exchange.h"

namespace zero {
namespace {

constexpr size_t kHashBytes = 32;

// Hash of the first `count` lines.
std::string HashOf(const std::vector<std::string>& lines, size_t count) {
  const auto end = lines.begin() + static_cast<std::ptrdiff_t>(std::min(count, lines.size()));
  return Sha256(absl::StrJoin(lines.begin(), end, "\n"));
}

// What fits of a line around byte `at`, with ... where more was cut off.
std::string Excerpt(const std::string& line, size_t at) {
  constexpr const char* kMore = "...";
  constexpr size_t kShown = 470;   // bytes
  constexpr size_t kBefore = 100;  // of them, that show where in the line it is
  if (line.size() <= kShown) return line;
  const size_t begin = at > kBefore ? at - kBefore : 0;
  return absl::StrCat(begin > 0 ? kMore : "", line.substr(begin, kShown),
                      begin + kShown < line.size() ? kMore : "");
}

}  // namespace

std::vector<std::string> AgreementLines(const Config& config, const Model& model) {
  std::vector<std::string> lines;
  const auto add = [&](const auto&... parts) { lines.push_back(absl::StrCat(parts...)); };
  // As many digits as tell any two numbers apart.
  const auto number = [](double value) { return absl::StrFormat("%.17g", value); };
  const auto on = [](bool is) { return is ? "true" : "false"; };
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
  add("bias_correction: ", on(config.bias_correction));
  add("momentum: ", number(config.momentum));
  add("nesterov: ", on(config.nesterov));
  for (size_t g = 0; g < config.groups.size(); ++g) {
    add("groups[", g, "].learning_rate_factor: ", number(config.groups[g].learning_rate_factor));
    add("groups[", g, "].weight_decay: ", number(config.groups[g].weight_decay));
  }
  add_schedule("clip_norm", config.clip_schedule, config.clip_norm);
  add("loss_scale.kind: ", Name(config.loss_scale.kind));
  add("loss_scale.scale: ", number(config.loss_scale.scale));
  add("loss_scale.window: ", config.loss_scale.window);
  add("loss_scale.hysteresis: ", config.loss_scale.hysteresis);
  add("loss_scale.consecutive_hysteresis: ", on(config.loss_scale.consecutive_hysteresis));
  add("loss_scale.minimum: ", number(config.loss_scale.minimum));
  add("max_consecutive_skips: ", config.max_consecutive_skips);
  add("check_overflow: ", on(config.check_overflow));
  add("check_gradients: ", on(config.check_gradients));
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
  const Offload& offload = config.offload;
  add("offload.optimizer: ", Name(offload.optimizer));
  add("offload.parameters: ", Name(offload.parameters));
  add("offload.ratio: ", number(offload.ratio));
  add("offload.gradients: ", on(offload.gradients));
  add("offload.piece_elements: ", offload.piece_elements);
  add("offload.buffer_count: ", offload.buffer_count);
  add("gather_16bit_weights_on_model_save: ", on(config.gather_16bit_weights_on_model_save));
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
  ZERO_ASSIGN_OR_RETURN(
      RankExchange exchange,
      RankExchange::Create(device, group, "comparison of the ranks' configurations"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                        device->CreateStream(absl::StrCat("create-", group->rank())));
  const auto run = [&](const std::string& text) {
    return exchange.Run(*stream, kStateTransfer, text);
  };
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        run(absl::StrCat(HashOf(lines, lines.size()), lines.size())));
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const std::string& said) { return said != all[0]; });
  if (other == all.end()) return absl::OkStatus();
  const auto rank = static_cast<size_t>(other - all.begin());

  // How many lines of rank 0 and of `rank` are the same, from the first on.
  const auto lines_of = [&](size_t r) {
    return static_cast<size_t>(std::stoull(all[r].substr(kHashBytes)));
  };
  size_t same = 0;
  size_t most = std::min(lines_of(0), lines_of(rank));
  while (same < most) {
    const size_t middle = (same + most + 1) / 2;
    ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> first, run(HashOf(lines, middle)));
    if (first[0] == first[rank]) {
      same = middle;
    } else {
      most = middle - 1;
    }
  }
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                        run(same < lines.size() ? lines[same] : "nothing more"));
  const std::string& first = texts[0];
  const std::string& second = texts[rank];
  const auto differs =
      std::mismatch(first.begin(), first.end(), second.begin(), second.end()).first;
  const auto at = static_cast<size_t>(differs - first.begin());
  return absl::InvalidArgumentError(
      absl::StrCat("Create: ranks 0 and ", rank, " differ: '", Excerpt(first, at), "' on rank 0, '",
                   Excerpt(second, at), "' on rank ", rank, "; they must be the same"));
}

}  // namespace zero
