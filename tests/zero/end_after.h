// File calls that end, as those of a process that is killed.
#pragma once

#include <atomic>
#include <cerrno>

#include "tests/io/gated_files.h"

namespace zero::test {

// Lets so many calls that change something through. The next one fails, and so do all later ones,
// as if the process had ended there; or, with `once`, only that one does. In force while it lives.
class EndAfter : public GatedFiles {
 public:
  explicit EndAfter(int64_t calls, bool once = false)
      : GatedFiles([this, calls, once](const FileCall& call) {
          const bool ends = once ? call.number == calls + 1 : call.number > calls;
          if (!ends) return kGoes;
          ended_ = true;
          return EIO;
        }) {}

  // Whether a call has failed.
  bool ended() const { return ended_; }

 private:
  std::atomic<bool> ended_{false};
};

}  // namespace zero::test
