// Flags of a program: one table from which they are read and --help is written.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero::support {

// Each Add* names a flag (without dashes) and the variable that gets its value; the variable's
// present value is the default. Both `--name value` and `--name=value` are understood.
class FlagTable {
 public:
  // Whole numbers and numbers from `least` to `most`.
  void AddCount(const std::string& name, int64_t* value, int64_t least, int64_t most,
                const std::string& meaning);
  void AddNumber(const std::string& name, double* value, double least, double most,
                 const std::string& meaning);
  // A number of bytes, "0", "512MB" or "2GiB": KB, MB, GB, TB are powers of 1000, KiB, MiB, GiB,
  // TiB, and K, M, G, T alone, of 1024; case does not matter.
  void AddSize(const std::string& name, int64_t* value, int64_t least, const std::string& meaning);
  // One of `choices`. `reason` follows the choices in the message for another value.
  void AddChoice(const std::string& name, std::string* value,
                 const std::vector<std::string>& choices, const std::string& meaning,
                 const std::string& reason = "");
  // Any text. `kind` stands for it in --help, "FILE" say.
  void AddText(const std::string& name, std::string* value, const std::string& kind,
               const std::string& meaning);
  // A list of texts with commas between them. May be given several times: the lists are joined.
  void AddList(const std::string& name, std::string* value, const std::string& kind,
               const std::string& meaning);
  // `--name`, `--noname`, `--name=true|false`, `--name true|false`.
  void AddSwitch(const std::string& name, bool* value, const std::string& meaning);

  // kInvalidArgument, one line, names the flag and what would be right; for an unknown flag the
  // nearest known one, if it is near; for one that is given twice both values. Variables before the
  // error may have changed.
  absl::Status Parse(const std::vector<std::string>& arguments);
  // Whether `name` (without dashes) was among the arguments.
  bool Given(const std::string& name) const { return given_.count("--" + name) != 0; }
  bool help() const { return help_; }  // --help was among the arguments

  // One line a flag: two spaces, the flag, its kind of value, its meaning, its default.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;  // with dashes
    std::string kind;  // of value
    std::string meaning;
    std::string initial;
    bool* on = nullptr;    // switches only
    bool repeats = false;  // may be given several times
    std::function<absl::Status(const std::string& value)> set;
  };

  const Flag* Find(const std::string& name) const;
  absl::Status Set(const Flag& flag, const std::string& value);
  std::string Nearest(const std::string& name) const;

  std::vector<Flag> flags_;
  std::map<std::string, std::string> given_;  // values, by name with dashes
  bool help_ = false;
};

// The bytes that such a text says; kInvalidArgument where it says none, or more than there are.
absl::StatusOr<int64_t> ParseSize(const std::string& text);
// The same bytes as the shortest such text.
std::string SizeText(int64_t bytes);

// A number as text that reads back as the same double: the shortest such. "null" if not finite.
std::string ShortestNumber(double value);

}  // namespace zero::support
