// Values by path as one JSON document.
#pragma once

#include <map>
#include <string>

namespace zero {

// An object of several lines, in the order of DeepSpeedKeys, whose sections are objects in it.
// `values`: JSON by the paths of known keys.
std::string NestedJson(const std::map<std::string, std::string>& values);

}  // namespace zero
