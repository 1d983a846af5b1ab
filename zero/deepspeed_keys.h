// Every key of a DeepSpeed configuration file that is known here, and what becomes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace zero {

enum class KeyKind : uint8_t {
  kSwitch,
  kCount,  // a whole number
  kNumber,
  kText,
  kList,
  kSection  // an object
};

enum class KeyFate : uint8_t {
  kHonoured,  // sets something, or asks for what is done anyway
  kIgnored,   // what it asks for has no meaning here, and changes no result
  kAbsent,    // what it asks for does not exist here yet, and changes no result
  kRefused    // what it asks for does not exist here, and would change results
};

const char* Name(KeyFate fate);  // "honoured", "ignored", "not here yet", "refused"

// What passes in a section that holds no "enabled": true.
inline constexpr char kNotEnabled[] = "disabled";

struct DeepSpeedKey {
  const char* path;  // names from the root, with points between them
  KeyKind kind;
  KeyFate fate;
  const char* passes;  // as JSON: asks for what is done anyway, and needs no note; "": none
  const char* reason;  // for what is not honoured; "": said with another key
};

// In the order of the documentation; a section comes before its keys.
absl::Span<const DeepSpeedKey> DeepSpeedKeys();

// Null: not known.
const DeepSpeedKey* FindDeepSpeedKey(const std::string& path);

// Names of the keys of a section, "" for the root.
std::vector<std::string> KeysOfSection(const std::string& section);

// The path that a key has today, for one with an older or another spelling; else `path` itself.
std::string PresentPath(const std::string& path);

// The part before the last point, and the part after it.
std::string SectionOf(const std::string& path);
std::string LastName(const std::string& path);

}  // namespace zero
