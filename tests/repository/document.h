// What a Markdown document names in backticks, and whether it exists.
//
// A word that begins with a folder of the project and a slash is a path, which may hold '*' and end
// in '/'. "program_test: Some case" is a test as CTest lists it. Fenced blocks are not looked at.
#pragma once

#include <string>
#include <vector>

namespace zero::repository {

struct Span {
  size_t line = 0;  // from 1
  std::string text;
};

// The inline code of `lines`; a span over the end of a line has a space there.
std::vector<Span> CodeSpans(const std::vector<std::string>& lines);

// The path that a span names; empty if it names none.
std::string PathIn(const std::string& span);
// The test that a span names, without spaces after the program's colon; empty if it names none.
std::string TestIn(const std::string& span);

// "name:line: `span` ..." for each path and test that is not there.
std::vector<std::string> FindMissing(const std::string& name, const std::vector<Span>& spans,
                                     const std::string& root,
                                     const std::vector<std::string>& tests);

}  // namespace zero::repository
