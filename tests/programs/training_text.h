// A small model and a text to train it on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/io/temporary_folder.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {

// `flags` after those of `others`, pairs of name and value, whose name they do not have. One that
// is empty, "--output=", only leaves that of `others` out.
std::vector<std::string> WithFlags(const std::map<std::string, std::string>& others,
                                   const std::vector<std::string>& flags);

// A folder with config.json of a model of two layers and a text of some thousand bytes.
class TrainingFolder {
 public:
  explicit TrainingFolder(bool tied = false);

  std::string File(const std::string& name) const { return folder_.File(name); }
  std::vector<std::string> Names() const;  // sorted
  std::string model() const { return File("config.json"); }
  std::string data() const { return File("text.txt"); }

  // zero-train, or a program of the same flags, on the two with `flags`; short sequences, few
  // threads, unless the flags say else.
  Outcome Train(const std::vector<std::string>& flags,
                const std::string& program = "zero-train") const;
  // zero-train with `flags`, an output and metrics answers as CheckFailed (refusal.h) has it, and
  // makes nothing.
  void CheckRefused(const std::vector<std::string>& flags, int status,
                    const std::vector<std::string>& words) const;
  // The same as Train, whose metrics are returned as text. Empty where the program failed.
  std::string Metrics(const std::vector<std::string>& flags,
                      const std::string& program = "zero-train") const;

 private:
  TemporaryFolder folder_;
};

// Text of a config.json. Hidden size 24 in 3 heads, 256 tokens, 32 positions.
std::string SmallConfig(bool tied);

}  // namespace zero::programs
