#include "examples/train/memory_remedies.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace zero::train {
namespace {

constexpr const char* kPlaces[] = {"none", "cpu", "nvme"};  // the further, the more is needed

int Rank(const std::string& place) {
  return static_cast<int>(std::find(std::begin(kPlaces), std::end(kPlaces), place) -
                          std::begin(kPlaces));
}

// The largest share of each slice, in hundredths, that the host has room for; 0: none.
double LargestRatio(OffloadOptions places, const PlacesFit& fit) {
  int fits = 0;
  int too_much = 101;
  while (too_much - fits > 1) {
    const int middle = (fits + too_much) / 2;
    places.ratio = middle / 100.0;
    (fit.host(places) ? fits : too_much) = middle;
  }
  return fits / 100.0;
}

class Search {
 public:
  Search(const OffloadOptions& options, const PlacesFit& fit) : options_(options), fit_(fit) {}

  void Places(const OffloadOptions& other) {
    if (!Needless(other) && fit_.both(other)) found_.push_back(other);
  }
  void Ratio(OffloadOptions other) {
    other.ratio = LargestRatio(other, fit_);
    if (other.ratio > 0 && other.ratio != options_.ratio) Places(other);
  }
  bool empty() const { return found_.empty(); }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const OffloadOptions& other : found_) texts.push_back(Text(other));
    return texts;
  }

 private:
  // What is asked for beyond options_, each the more the larger.
  std::array<int, 4> Changes(const OffloadOptions& other) const {
    return {Rank(other.optimizer), Rank(other.parameters), other.gradients ? 1 : 0,
            other.ratio == options_.ratio ? 0 : 1};
  }
  bool Needless(const OffloadOptions& other) const {
    // What takes the least of the host, where that lacks.
    const bool all_on_disk = other.optimizer == "nvme" && other.parameters == "nvme";
    if (all_on_disk && other.ratio == options_.ratio && !fit_.host(options_)) return false;
    const std::array<int, 4> changes = Changes(other);
    return std::any_of(found_.begin(), found_.end(), [&](const OffloadOptions& found) {
      const std::array<int, 4> less = Changes(found);
      return std::equal(less.begin(), less.end(), changes.begin(), std::less_equal<int>());
    });
  }

  std::string Text(const OffloadOptions& other) const {
    std::vector<std::string> flags;
    const auto add = [&](bool differs, const auto&... text) {
      if (differs) flags.push_back(absl::StrCat(text...));
    };
    add(other.optimizer != options_.optimizer, "--offload_optimizer ", other.optimizer);
    add(other.parameters != options_.parameters, "--offload_param ", other.parameters);
    add(other.gradients != options_.gradients, "--offload_gradients");
    add(other.ratio != options_.ratio, "--offload_ratio ", other.ratio);
    add(other.on_disk() && options_.nvme_path.empty(), "with --nvme_path");
    return absl::StrJoin(flags, " ");
  }

  const OffloadOptions& options_;
  const PlacesFit& fit_;
  std::vector<OffloadOptions> found_;
};

// Those that offload no less, as far as the stage can; the same ones first.
std::vector<OffloadOptions> PlacesFrom(const OffloadOptions& options, int64_t stage) {
  std::vector<OffloadOptions> all;
  for (int optimizer = Rank(options.optimizer); optimizer < 3; ++optimizer) {
    for (int parameters = Rank(options.parameters); parameters < 3; ++parameters) {
      OffloadOptions places = options;
      places.optimizer = kPlaces[optimizer];
      places.parameters = kPlaces[parameters];
      if (CheckPlaces(places, stage).ok()) all.push_back(places);
    }
  }
  return all;
}

}  // namespace

std::vector<std::string> FittingPlaces(const OffloadOptions& options, int64_t stage,
                                       int64_t buffers, const PlacesFit& fit) {
  const std::vector<OffloadOptions> all = PlacesFrom(options, stage);
  OffloadOptions stored = options;
  stored.gradients = true;
  const bool gradients = !options.gradients && options.any() && stage >= 2;
  Search search(options, fit);
  for (const OffloadOptions& places : all) search.Places(places);
  if (options.any()) search.Ratio(options);
  if (gradients) search.Places(stored);
  std::vector<std::string> texts = search.Texts();
  // No flag says how many.
  for (OffloadOptions fewer = options; options.any() && buffers > 2;) {
    fewer.buffers = --buffers;
    if (!fit.both(fewer)) continue;
    texts.push_back(
        absl::StrCat("fewer buffers, offload_optimizer.buffer_count ", buffers, " of --config"));
    break;
  }
  if (!texts.empty()) return texts;
  for (const OffloadOptions& places : all) {
    if (!places.any()) continue;
    search.Ratio(places);
    if (options.gradients || stage < 2) continue;
    stored = places;
    stored.gradients = true;
    search.Places(stored);
    search.Ratio(stored);
  }
  return search.Texts();
}

std::vector<std::string> OffloadingMore(
    const OffloadOptions& options, int64_t stage,
    const std::function<int64_t(const OffloadOptions& places)>& device_bytes) {
  std::vector<std::string> texts;
  const int64_t now = device_bytes(options);
  const auto try_one = [&](const char* text, const OffloadOptions& other) {
    if (CheckPlaces(other, stage).ok() && device_bytes(other) < now) texts.push_back(text);
  };
  OffloadOptions other = options;
  if (options.optimizer == "none") {
    other.optimizer = "cpu";
    try_one("--offload_optimizer", other);
  }
  if (options.parameters == "none") {
    other.parameters = "cpu";  // with the states
    try_one("--offload_param", other);
  }
  if (options.any()) {
    other = options;
    other.ratio = 1;
    try_one("a higher --offload_ratio", other);
    other = options;
    other.gradients = true;
    try_one("--offload_gradients", other);
  }
  return texts;
}

}  // namespace zero::train
