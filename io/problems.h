// All that is wrong with a thing, as one message.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace zero {

class Problems {
 public:
  void Add(std::string what) { list_.push_back(std::move(what)); }
  bool empty() const { return list_.empty(); }

  // One line. Of more than ten the last ones are only counted.
  std::string text() const {
    constexpr size_t kShown = 10;
    if (list_.size() <= kShown) return absl::StrJoin(list_, "; ");
    return absl::StrCat(absl::StrJoin(list_.begin(), list_.begin() + kShown, "; "), "; and ",
                        list_.size() - kShown, " more");
  }

 private:
  std::vector<std::string> list_;
};

}  // namespace zero
