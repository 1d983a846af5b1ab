// Which key somebody may have meant who wrote one that does not exist.
#pragma once

#include <string>

#include "io/relaxed_json.h"

namespace zero {

// The path of a key that changes results and that `key`, which is unknown in `section`, may be
// meant as: one of the section with at most two other characters; with more at its end, or less;
// with all words of `key`, if need be shortened ("grad_clip"), or as its last word the only one; or
// one of another section with all words of `key`, if there are several; or one that others call so.
// Empty: none, or only such as are objects where `value` is none, or the reverse.
std::string MeantKey(const std::string& section, const std::string& key, const JsonValue& value);

}  // namespace zero
