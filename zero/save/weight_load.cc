#include "zero/save/weight_load.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/sha256.h"
#include "device/status.h"
#include "io/problems.h"
#include "kernels/float16_math.h"
#include "zero/misuse.h"
#include "zero/nearest_name.h"

namespace zero {
namespace {

constexpr int64_t kComparedBytes = 1 << 20;  // of each of two tensors at once

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool IsReadable(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// Whether a finite value becomes inf in `dtype`, whatever way 16 bits are rounded.
bool Overflows(float value, DType dtype) {
  if (dtype == DType::kF32) return false;
  const bool half = dtype == DType::kF16;
  return !std::isfinite(half ? ToFloat(ToFloat16(value)) : ToFloat(ToBFloat16(value)));
}

void CheckTensor(const SafetensorsTensor& tensor, const Parameter& parameter, Problems& problems) {
  if (!IsReadable(tensor.dtype)) {
    problems.Add(absl::StrCat("tensor '", tensor.name, "' is ", tensor.dtype,
                              "; F32, BF16 and F16 can be read, no quantised weights"));
  } else if (tensor.shape != parameter.shape) {
    problems.Add(absl::StrCat("tensor '", tensor.name, "' has shape ", ShapeText(tensor.shape),
                              ", the model's is ", ShapeText(parameter.shape)));
  }
}

}  // namespace

absl::StatusOr<WeightLoader> WeightLoader::Open(const Context& context, RankExchange* exchange,
                                                const std::string& folder,
                                                const LoadWeightsOptions& options) {
  const auto agree = [&](const absl::Status& own) {
    return exchange->Agree(*context.communication, kStateTransfer, own);
  };
  absl::StatusOr<WeightFolder> files = WeightFolder::Open(folder);
  ZERO_RETURN_IF_ERROR(agree(files.status()));
  WeightLoader loader(context, exchange, *std::move(files));
  ZERO_RETURN_IF_ERROR(agree(loader.Match(options)));
  ZERO_RETURN_IF_ERROR(loader.CompareFiles());
  ZERO_RETURN_IF_ERROR(agree(loader.CompareAliases()));
  return loader;
}

absl::Status WeightLoader::Match(const LoadWeightsOptions& options) {
  Problems problems;
  std::set<std::string> known;
  for (const Unit& unit : context_->model->units) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<std::string> names = {parameter.name};
      names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
      std::string& first = name_in_file_[parameter.name];
      for (const std::string& name : names) {
        known.insert(name);
        const auto found = files_.tensors().find(name);
        if (found == files_.tensors().end()) continue;
        CheckTensor(found->second, parameter, problems);
        loaded_.bytes += found->second.bytes();
        if (first.empty()) {
          first = name;
        } else {
          aliases_.emplace_back(first, name);
        }
      }
      ++loaded_.tensors;
      if (first.empty()) {
        problems.Add(absl::StrCat("tensor '", parameter.name, "' of shape ",
                                  ShapeText(parameter.shape), " is missing"));
      }
    }
  }
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [name, tensor] : files_.tensors()) {
    if (known.count(name) != 0) continue;
    const bool ignored = std::any_of(
        options.ignored.begin(), options.ignored.end(),
        [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
    if (ignored) {
      loaded_.ignored.push_back(name);
      continue;
    }
    problems.Add(absl::StrCat("tensor '", name, "' of ", tensor.dtype, " and shape ",
                              ShapeText(tensor.shape), " is none of the model; the nearest is '",
                              NearestName(name, names), "'"));
  }
  loaded_.notes = files_.notes();
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(files_.path(), ": ", problems.text()));
}

absl::Status WeightLoader::CompareFiles() {
  std::string text;
  for (const auto& [name, tensor] : files_.tensors()) {
    absl::StrAppend(&text, name, " ", tensor.dtype, " ", ShapeText(tensor.shape), "\n");
  }
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        exchange_->Run(*context_->communication, kStateTransfer, Sha256(text)));
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    return Misuse(absl::InvalidArgumentError(
        absl::StrCat(files_.path(), ": ranks 0 and ", r, " see different tensors")));
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::CompareAliases() const {
  Problems problems;
  for (const auto& [a, b] : aliases_) {
    const absl::Status same = CompareTensors(a, b);
    if (absl::IsInvalidArgument(same)) {
      problems.Add(std::string(same.message()));
    } else if (!same.ok()) {
      return same;
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(files_.path(), ": ", problems.text()));
}

absl::Status WeightLoader::CompareTensors(const std::string& a, const std::string& b) const {
  const SafetensorsTensor& tensor = files_.tensors().at(a);
  const auto differ = [&](const std::string& how) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", a, "' and '", b, "' are one tensor of the model, but ", how));
  };
  if (tensor.dtype != files_.tensors().at(b).dtype) {
    return differ(
        absl::StrCat("one is ", tensor.dtype, ", the other ", files_.tensors().at(b).dtype));
  }
  // Each rank compares its part.
  const int64_t ranks = context_->group->size();
  const int64_t part = (tensor.bytes() + ranks - 1) / ranks;
  const int64_t end = std::min(part * (context_->rank() + 1), tensor.bytes());
  const int64_t element = tensor.elements() == 0 ? 1 : tensor.bytes() / tensor.elements();
  std::vector<char> bytes_a, bytes_b;
  for (int64_t at = part * context_->rank(); at < end; at += kComparedBytes) {
    const auto n = static_cast<size_t>(std::min(kComparedBytes, end - at));
    bytes_a.resize(n);
    bytes_b.resize(n);
    ZERO_RETURN_IF_ERROR(files_.ReadBytes(a, at, absl::MakeSpan(bytes_a)));
    ZERO_RETURN_IF_ERROR(files_.ReadBytes(b, at, absl::MakeSpan(bytes_b)));
    const auto other = std::mismatch(bytes_a.begin(), bytes_a.end(), bytes_b.begin());
    if (other.first == bytes_a.end()) continue;
    return differ(
        absl::StrCat("element ", (at + (other.first - bytes_a.begin())) / element, " differs"));
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::Read(const Parameter& parameter, int64_t first, absl::Span<float> out) {
  const std::string& name = name_in_file_.at(parameter.name);
  ZERO_RETURN_IF_ERROR(files_.Read(name, first, out));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto value = [&] {
      return absl::StrCat("tensor '", name, "': element ", first + static_cast<int64_t>(i), " is ",
                          out[i]);
    };
    if (!std::isfinite(out[i])) {
      return absl::InvalidArgumentError(absl::StrCat(files_.path(), ": ", value()));
    }
    if (!Overflows(out[i], parameter.dtype)) continue;
    if (loaded_.overflowed++ == 0) {
      loaded_.first_overflowed = absl::StrCat(value(), ", too large for ", Name(parameter.dtype));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WeightsLoaded> WeightLoader::Load(StateTransfer* transfer) {
  const Stream& stream = *context_->communication;
  absl::Status read;  // of the files
  const absl::Status written = transfer->Write(
      State::kMaster, [&](const Parameter& parameter, int64_t first, absl::Span<float> out) {
        read = Read(parameter, first, out);
        return read;
      });
  if (read.ok()) ZERO_RETURN_IF_ERROR(written);
  ZERO_RETURN_IF_ERROR(exchange_->Agree(stream, kStateTransfer, read));
  // Weights that are whole on every rank have been read, and counted, by every rank.
  if (context_->plan->weights.sliced) {
    ZERO_ASSIGN_OR_RETURN(
        const std::vector<std::string> counts,
        exchange_->Run(stream, kStateTransfer,
                       absl::StrCat(loaded_.overflowed, " ", loaded_.first_overflowed)));
    loaded_.overflowed = 0;
    loaded_.first_overflowed.clear();
    for (const std::string& count : counts) {
      const size_t space = count.find(' ');
      loaded_.overflowed += std::stoll(count.substr(0, space));
      if (loaded_.first_overflowed.empty()) loaded_.first_overflowed = count.substr(space + 1);
    }
  }
  return loaded_;
}

}  // namespace zero
