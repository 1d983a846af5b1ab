#include "tools/progress_bar.h"

#include <sstream>

#include "tests/catch.h"

namespace zero::tools {
namespace {

TEST_CASE("ProgressBar: draws on a terminal only and wipes its line out", "[tools]") {
  std::ostringstream plain;
  {
    ProgressBar bar("reading", plain, false);
    bar.Show(1, 2);
  }
  CHECK(plain.str().empty());

  std::ostringstream terminal;
  {
    ProgressBar bar("reading", terminal, true);
    bar.Show(500'000'000, 2'000'000'000);
    const std::string line = terminal.str();
    CHECK_THAT(line, ContainsSubstring("\rreading [#######                       ]  25%  "
                                       "0.50 of 2.00 GB"));
  }
  const std::string all = terminal.str();
  const size_t line_end = all.find('\r', 1);
  REQUIRE(line_end != std::string::npos);
  CHECK(all.substr(line_end) == "\r" + std::string(line_end - 1, ' ') + "\r");
}

TEST_CASE("ProgressBar: nothing to do and too much done are no error", "[tools]") {
  std::ostringstream out;
  {
    ProgressBar bar("reading", out, true);
    bar.Show(0, 0);
  }
  CHECK(out.str().empty());
  ProgressBar bar("reading", out, true);
  bar.Show(5, 2);
  CHECK_THAT(out.str(), ContainsSubstring("[##############################] 100%"));
}

}  // namespace
}  // namespace zero::tools
