#include "examples/support/flags.h"

#include <map>
#include <sstream>

#include "examples/train/options.h"
#include "tests/catch.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {
namespace {

struct Values {
  int64_t count = 3;
  double number = 0.5;
  std::string choice = "red";
  std::string text;
  bool on = true;
  support::FlagTable flags;

  Values() {
    flags.AddCount("count", &count, 1, 10, "how many");
    flags.AddNumber("number", &number, 0, 1, "how much");
    flags.AddChoice("choice", &choice, {"red", "green"}, "which");
    flags.AddText("text", &text, "FILE", "what");
    flags.AddSwitch("on", &on, "whether");
  }
};

std::string ErrorOf(const std::vector<std::string>& arguments) {
  Values values;
  return std::string(values.flags.Parse(arguments).message());
}

TEST_CASE("FlagTable: both spellings of a value are understood") {
  Values values;
  REQUIRE_OK(values.flags.Parse(
      {"--count=7", "--number", "2.5e-1", "--choice", "green", "--text", "a b", "--on=false"}));
  CHECK(values.count == 7);
  CHECK(values.number == 0.25);
  CHECK(values.choice == "green");
  CHECK(values.text == "a b");
  CHECK_FALSE(values.on);
  Values others;
  others.text = "before";
  REQUIRE_OK(others.flags.Parse({"--text="}));
  CHECK(others.text.empty());
}

TEST_CASE("FlagTable: a flag that is given twice is refused with both values") {
  CHECK(ErrorOf({"--count=7", "--number=0.5", "--count", "8"}) ==
        "--count is given twice, as '7' and as '8'; keep one");
  CHECK_THAT(ErrorOf({"--count=7", "--count=7"}), ContainsSubstring("given twice"));
  CHECK_THAT(ErrorOf({"--text=", "--text=a"}), ContainsSubstring("as '' and as 'a'"));
  CHECK(ErrorOf({"--noon", "--on"}) == "--on is given twice, as 'false' and as 'true'; keep one");
  CHECK_THAT(ErrorOf({"--on", "--on=true"}), ContainsSubstring("--on is given twice"));
  CHECK(ErrorOf({"--help", "--help"}).empty());
}

TEST_CASE("FlagTable: a size is a number with or without a unit and at least what is allowed") {
  int64_t size = 5'000'000'000;
  const auto parse = [&](const std::string& text) {
    support::FlagTable flags;
    flags.AddSize("size", &size, 1, "how large");
    CHECK_THAT(flags.Help(), ContainsSubstring("--size SIZE"));
    const absl::Status parsed = flags.Parse({"--size", text});
    if (parsed.ok()) return size;
    CHECK_THAT(std::string(parsed.message()), ContainsSubstring("--size is '" + text + "'"));
    return int64_t{-1};
  };
  for (const auto& [text, bytes] : std::map<std::string, int64_t>{{"1", 1},
                                                                  {"7B", 7},
                                                                  {"500MB", 500'000'000},
                                                                  {"5gb", 5'000'000'000},
                                                                  {"3KiB", 3072},
                                                                  {"2TB", 2'000'000'000'000},
                                                                  {"1GiB", 1 << 30}}) {
    CHECK(parse(text) == bytes);
  }
  for (const char* wrong : {"", "0", "-1", "GB", "5 GB", "5XB", "1.5GB", "5P", "5GBs",
                            "9223372036854775807KB", "99999999999999999999"}) {
    CHECK(parse(wrong) == -1);
  }
}

TEST_CASE("FlagTable: lists that are given several times are joined") {
  Values values;
  std::string list;
  values.flags.AddList("list", &list, "NAMES", "which ones");
  REQUIRE_OK(values.flags.Parse({"--list=a,b", "--count=7", "--list", "c"}));
  CHECK(list == "a,b,c");
}

TEST_CASE("FlagTable: a switch is on, off, or what its value says") {
  for (const auto& [arguments, right] :
       std::vector<std::pair<std::vector<std::string>, bool>>{{{"--on"}, true},
                                                              {{"--noon"}, false},
                                                              {{"--on=true"}, true},
                                                              {{"--on=false"}, false},
                                                              {{"--on", "false"}, false}}) {
    Values values;
    REQUIRE_OK(values.flags.Parse(arguments));
    CHECK(values.on == right);
  }
}

TEST_CASE("FlagTable: wrong arguments are refused, with what would be right") {
  CHECK(ErrorOf({"--count", "0"}) == "--count is '0'; it must be a whole number from 1 to 10");
  for (const char* wrong : {"11", "x", "", "1.5", "3x", " 3", "3 ", "99999999999999999999"}) {
    CAPTURE(wrong);
    CHECK_THAT(ErrorOf({std::string("--count=") + wrong}), ContainsSubstring("from 1 to 10"));
  }
  support::FlagTable large;
  int64_t seed = 0;
  large.AddCount("seed", &seed, 0, INT64_MAX, "of what");
  CHECK(large.Parse({"--seed=9223372036854775808"}).message() ==
        "--seed is '9223372036854775808'; it must be a whole number from 0 to 9223372036854775807");
  for (const char* wrong : {"2", "-0.1", "nan", "inf", "2e-5x", "0,5", ""}) {
    CAPTURE(wrong);
    CHECK_THAT(ErrorOf({std::string("--number=") + wrong}), ContainsSubstring("from 0 to 1"));
  }
  CHECK(ErrorOf({"--choice=blue"}) == "--choice is 'blue'; it must be red or green");
  CHECK(ErrorOf({"--on=yes"}) == "--on is 'yes'; it must be true or false");
  CHECK(ErrorOf({"--cuont=1"}) == "unknown flag '--cuont'; the nearest is --count");
  CHECK(ErrorOf({"--nocount"}) == "unknown flag '--nocount'; the nearest is --count");
  CHECK(ErrorOf({"--count"}) == "--count needs a value: --count N");
  CHECK(ErrorOf({"--text", "--on"}) == "--text needs a value: --text FILE");
  CHECK_THAT(ErrorOf({"3"}), ContainsSubstring("'3' is no flag"));
}

TEST_CASE("FlagTable: sizes are bytes with the units of 1000 and of 1024") {
  const auto bytes = [](const std::string& text) {
    const auto size = support::ParseSize(text);
    return size.ok() ? *size : -1;
  };
  CHECK(bytes("0") == 0);
  CHECK(bytes("1048576") == 1 << 20);
  CHECK(bytes("512MB") == 512'000'000);
  CHECK(bytes("512MiB") == int64_t{512} << 20);
  CHECK(bytes("3KB") == 3000);
  CHECK(bytes("2K") == 2048);
  CHECK(bytes("2M") == 2 << 20);
  CHECK(bytes("2g") == int64_t{2} << 30);
  CHECK(bytes("2T") == int64_t{2} << 40);
  CHECK(bytes("9223372036854775807") == INT64_MAX);
  CHECK(bytes("8388607TiB") == int64_t{8388607} << 40);
  for (const char* wrong : {"", "MB", "-1", "1.5GB", "1 GB", "1P", "0x10", "8388608TiB",
                            "9223372036854775808", "1GBGB"}) {
    CAPTURE(wrong);
    CHECK(bytes(wrong) == -1);
  }
  for (const auto& [size, text] :
       std::vector<std::pair<int64_t, std::string>>{{0, "0"},
                                                    {1, "1"},
                                                    {1000, "1KB"},
                                                    {1024, "1KiB"},
                                                    {1 << 20, "1MiB"},
                                                    {1'000'000'000, "1GB"},
                                                    {5'000'000'000, "5GB"},
                                                    {1001, "1001"}}) {
    CHECK(support::SizeText(size) == text);
    CHECK(bytes(text) == size);
  }
  support::FlagTable flags;
  int64_t size = 2'000'000;
  flags.AddSize("size", &size, 1000, "how much");
  CHECK_THAT(flags.Help(), ContainsSubstring("--size SIZE") && ContainsSubstring("(2MB)"));
  CHECK(flags.Parse({"--size=999"}).message() ==
        "--size is '999'; it must be a number of bytes from 1KB on, as 512MB or 2GiB");
  CHECK_OK(flags.Parse({"--size", "1GiB"}));
  CHECK(size == 1 << 30);
}

TEST_CASE("FlagTable: a name that is near no flag is answered with --help") {
  support::FlagTable flags;
  std::string dtype;
  bool prefetch = false;
  flags.AddText("dtype", &dtype, "TEXT", "");
  flags.AddSwitch("prefetch", &prefetch, "");
  CHECK_THAT(std::string(flags.Parse({"--stage"}).message()),
             ContainsSubstring("unknown flag '--stage'; see --help"));
  CHECK_THAT(std::string(flags.Parse({"--prefech"}).message()),
             ContainsSubstring("the nearest is --prefetch"));
  CHECK_OK(flags.Parse({"-h"}));
  CHECK(flags.help());
}

TEST_CASE("zero-train --help: one line for each flag, with its default") {
  const Outcome outcome = RunProgram("zero-train", {"--help"});
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  train::Options options;
  support::FlagTable flags;
  train::AddFlags(flags, options);
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);
  CHECK_THAT(line, ContainsSubstring("usage: zero-train"));
  int count = 0;
  for (; std::getline(lines, line) && !line.empty(); ++count) {
    CAPTURE(line);
    CHECK(line.substr(0, 4) == "  --");
    CHECK(line.size() <= 120);
  }
  CHECK(count == LinesOf(flags.Help()));
  for (const char* start : {"signals: SIGINT (Ctrl-C)", "exit status: 0: "}) {
    CHECK_THAT(outcome.out, ContainsSubstring(std::string("\n") + start));
  }
  for (const char* flag :
       {"  --model PATH ", "  --shuffle true|false ", "  --dtype fp32|bf16|fp16 "}) {
    CHECK_THAT(outcome.out, ContainsSubstring(flag));
  }
}

}  // namespace
}  // namespace zero::programs
