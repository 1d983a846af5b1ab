// Words that must not occur.
#pragma once

#include <string>
#include <vector>

namespace zero::repository {

// Build files, scripts or code that compile for the machine they are built on: the result would not
// run on another one, nor give the same bits.
std::vector<std::string> FindNativeBuilds(const std::string& root);

// Notes of unfinished work on the floors of the library.
std::vector<std::string> FindUnfinishedMarks(const std::string& root);

// Calls on the floors of the library that end the process or print.
std::vector<std::string> FindExitsAndPrints(const std::string& root);

// Headers among `public_headers` (paths from the root) that include a header of a floor which is
// not among them: they would not compile once installed.
std::vector<std::string> FindPrivateIncludes(const std::string& root,
                                             const std::vector<std::string>& public_headers);

}  // namespace zero::repository
