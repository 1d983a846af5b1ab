// What the tests of SaveWeights and LoadWeights share.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/weight_folder.h"
#include "tests/io/replaced_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {

using FileContents = std::map<std::string, std::string>;  // bytes by name

// The system's calls but for fsync, which does nothing: for tests that look at no disk and would
// wait for it hundreds of times. In force while it lives.
class UnsyncedFiles : public ReplacedFiles {
 public:
  int Fsync(int) override { return 0; }
};

// Every file in a folder; folders in it are called "name/" and have no bytes.
FileContents ReadFolder(const std::string& path);

// Bytes of each tensor.
absl::StatusOr<FileContents> ReadTensors(const std::string& folder);

// An element of (seed, parameter) that 16 bits cannot hold, of either sign, below 1.
float ValueAt(int seed, const std::string& name, int64_t element);
// Gives them to Write.
Source Values(int seed);

// The bytes that a file holds of what Values(seed) wrote as masters.
FileContents ExpectedTensors(const Model& model, int seed, std::optional<DType> dtype);

// Runs `body` on every rank, each with an optimizer whose masters are Values(seed).
struct SavingRun {
  Config config;
  Model model;
  int ranks = 1;
  int seed = 1;
  std::function<absl::Status(Rank&)> body;
};
// The first error of a rank; none of those of the others is hidden by it.
absl::Status Run(const SavingRun& run);

// An error with the text unless `fine`.
inline absl::Status Require(bool fine, const std::string& text) {
  return fine ? absl::OkStatus() : absl::InternalError(text);
}

}  // namespace zero::test
