// The values of a configuration file by path, and what is to be said about them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "io/relaxed_json.h"
#include "zero/deepspeed_config.h"
#include "zero/deepspeed_keys.h"

namespace zero {

// A number as text: the shortest that reads back as the same double.
std::string ShortestText(double value);

// Paths are those of DeepSpeedKeys. A value comes from the file, where the key is left out or
// "auto" from the caller, else from the default. A wrong one is added to the problems, and reading
// goes on with the default.
class DeepSpeedValues {
 public:
  // Looks at every key: unknown ones, those that occur in two spellings, those that are not
  // honoured. All arguments must live longer.
  DeepSpeedValues(const JsonValue& root, const ConfigContext& context,
                  std::vector<JsonProblem>& problems);

  // Null: left out.
  const JsonValue* Find(const std::string& path) const;
  bool IsAuto(const std::string& path) const;
  // What the caller has for `path`; null: nothing.
  const CallerValue* Given(const std::string& path) const;
  // The same as a T; nothing, which is a problem, where it is another type.
  template <typename T>
  std::optional<T> GivenAs(const std::string& path);

  // Nothing where neither the file nor the caller has a right value.
  std::optional<bool> MaybeSwitch(const std::string& path);
  std::optional<int64_t> MaybeCount(const std::string& path, int64_t least, int64_t most);
  // `wanted` completes "it must be".
  std::optional<double> MaybeNumber(const std::string& path, absl::FunctionRef<bool(double)> right,
                                    const std::string& wanted);
  std::optional<std::string> MaybeText(const std::string& path);
  // The one of `choices` that it is, whatever the case of its letters.
  std::optional<std::string> MaybeChoice(const std::string& path,
                                         const std::vector<std::string>& choices);

  // The same with a default. The value becomes part of the resolved configuration.
  bool Switch(const std::string& path, bool otherwise);
  int64_t Count(const std::string& path, int64_t otherwise, int64_t least, int64_t most);
  double Number(const std::string& path, double otherwise, absl::FunctionRef<bool(double)> right,
                const std::string& wanted);
  std::string Choice(const std::string& path, const std::string& otherwise,
                     const std::vector<std::string>& choices);

  // One item of a list that must hold `size` numbers; nothing where there is no list.
  std::optional<double> Item(const std::string& path, size_t index, size_t size,
                             absl::FunctionRef<bool(double)> right, const std::string& wanted);
  // kAbsent, kIgnored sections whose keys are looked at one by one: says that it is ignored.
  void NoteIgnored(const std::string& path);

  // Of the keys of `section` that are honoured and were not read: "<key> is no part of <owner>".
  void RefuseUnread(const std::string& section, const std::string& owner);

  void Resolve(const std::string& path, const std::string& json) { resolved_[path] = json; }
  void Forget(const std::string& path) { resolved_.erase(path); }
  // The place of the key's value, if it is in the file.
  void Problem(const std::string& path, const std::string& text);
  // "<path> is <value>; it must be <wanted>".
  void Wrong(const std::string& path, const std::string& value, const std::string& wanted);
  // The same of the caller's value for `path`, which there must be.
  void WrongGiven(const std::string& path, const std::string& wanted);
  void Note(const std::string& text) { notes_.push_back(text); }
  // The path as the file spells it.
  std::string Spelled(const std::string& path) const;

  size_t problems() const { return problems_.size(); }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::map<std::string, std::string>& resolved() const { return resolved_; }

 private:
  struct Entry {
    std::string written;  // path
    const JsonValue* value = nullptr;
  };

  void Walk(const std::string& section, const std::string& written, const JsonValue& object);
  void Visit(const std::string& path, const JsonMember& member, const std::string& written);
  void Unknown(const std::string& section, const std::string& written, const JsonMember& member);
  void Judge(const DeepSpeedKey& key, const Entry& entry);
  bool HasKind(const DeepSpeedKey& key, const Entry& entry);
  bool Passes(const DeepSpeedKey& key, const JsonValue& value) const;

  // The text of a number, quoted or not; nothing for another kind of value.
  std::optional<std::string> NumberText(const std::string& path, const JsonValue& value);
  // The value of a key that is in the file and not "auto".
  const JsonValue* InFile(const std::string& path);
  void CheckGiven(const std::string& path, bool same);

  const ConfigContext& context_;
  std::vector<JsonProblem>& problems_;
  std::map<std::string, Entry> entries_;
  std::set<std::string> read_;
  std::set<std::string> unquoted_;  // noted
  std::vector<std::string> notes_;
  std::map<std::string, std::string> resolved_;
};

}  // namespace zero
