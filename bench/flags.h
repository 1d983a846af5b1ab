// Flags of a subcommand: --name value or --name=value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace zero::bench {

class Flags {
 public:
  // The variables hold the defaults and must outlive Parse.
  void Add(const std::string& name, int64_t* value, int64_t minimum, const std::string& meaning);
  void Add(const std::string& name, std::string* value, const std::string& meaning);

  // kInvalidArgument names the flag that is unknown, without a value, or out of range.
  absl::Status Parse(const std::vector<std::string>& arguments);
  // --help was among the arguments.
  bool help() const { return help_; }

  // One line a flag, with its default.
  std::string Describe() const;

 private:
  struct Flag {
    std::string name;
    int64_t* number = nullptr;
    std::string* text = nullptr;
    int64_t minimum = 0;
    std::string meaning;
    std::string initial;
  };
  static absl::Status Set(const Flag& flag, const std::string& value);

  std::vector<Flag> flags_;
  bool help_ = false;
};

}  // namespace zero::bench
