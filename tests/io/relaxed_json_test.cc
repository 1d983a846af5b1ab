#include "io/relaxed_json.h"

#include <clocale>
#include <cmath>

#include "tests/catch.h"

namespace zero {
namespace {

// The problems of a text, a line each.
std::string ProblemsOf(const std::string& text) {
  std::vector<JsonProblem> problems;
  const bool read = ReadRelaxedJson(text, problems).has_value();
  std::string all = read ? "" : "refused\n";
  for (const JsonProblem& problem : problems) {
    all += ToString(problem.place) + ": " + problem.text + "\n";
  }
  return all;
}

std::string Reread(const std::string& text) {
  std::vector<JsonProblem> problems;
  const std::optional<JsonValue> value = ReadRelaxedJson(text, problems);
  return value.has_value() && problems.empty() ? ToText(*value) : "refused";
}

TEST_CASE("RelaxedJson: values read back as they were written") {
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), std::string("null"), std::string("true"),
        std::string("-12.50e+3"), std::string("\"a\\\"b\\\\c\\nd\""),
        std::string("{\"a\": [1, {\"b\": false}], \"c\": \"\"}")}) {
    CHECK(Reread(text) == text);
  }
  CHECK(Reread("\"\\u00e9\\uD83D\\uDE00\\/\\t\"") == "\"\xC3\xA9\xF0\x9F\x98\x80/\\u0009\"");
  CHECK(Reread("{\"scale\": -Infinity, \"n\": NaN}") == "{\"scale\": -Infinity, \"n\": NaN}");
}

TEST_CASE("RelaxedJson: comments, trailing commas, byte order mark and line ends are skipped") {
  CHECK(Reread("\xEF\xBB\xBF// first\r\n{ # second\r\n\t\"a\": 1, /* third\n, */"
               " \"b\": [1, 2,],\r\n}// last") == "{\"a\": 1, \"b\": [1, 2]}");
  CHECK(Reread("{\"url\": \"https://a/#b /* c */\"}") == "{\"url\": \"https://a/#b /* c */\"}");
}

TEST_CASE("RelaxedJson: missing commas and keys that occur twice are named and read over") {
  CHECK(ProblemsOf("{\"a\": {\n  \"b\": 1\n  \"c\": 2},\n \"a\": 3 \"d\": [1 2]\n}") ==
        "line 3 column 3: a comma is missing before \"c\"\n"
        "line 4 column 2: key \"a\" occurs twice; first at line 1 column 2\n"
        "line 4 column 9: a comma is missing before \"d\"\n"
        "line 4 column 17: a comma is missing before '2'\n");
}

TEST_CASE("RelaxedJson: what is no JSON is refused with its line and column") {
  const auto refused = [](const std::string& text, const std::string& words) {
    CAPTURE(text);
    CHECK(ProblemsOf(text) == "refused\n" + words + "\n");
  };
  refused("", "line 1 column 1: there is no value, only blanks and comments");
  refused("\n# x", "line 2 column 4: there is no value, only blanks and comments");
  refused("{}\n{\"a\": 1}", "line 2 column 1: something follows the end of the document: '{'");
  refused("{\"a\":\n \"b\", <c>}", "line 2 column 7: expected a key in double quotes, not '<'");
  refused("{\"\xC3\xA9\": tru}", "line 1 column 7: expected a value, not 'tru'");
  refused("{\"a\": True}", "line 1 column 7: expected a value, not 'True'");
  refused("{\"a\": 2e-5x}", "line 1 column 7: expected a value, not '2e-5x'");
  refused("{\"a\": .5}", "line 1 column 7: expected a value, not '.5'");
  refused("{\"a\": 01}", "line 1 column 7: expected a value, not '01'");
  refused("{\"a\": }", "line 1 column 7: expected a value, not '}'");
  refused("{\"a\": 1", "line 1 column 1: the object that begins here has no end");
  refused("{\"a\": [1,", "line 1 column 7: the list that begins here has no end");
  refused("{\"a\": 1]", "line 1 column 8: expected a comma or the end of the object, not ']'");
  refused("[1 : 2]", "line 1 column 4: expected a comma or the end of the list, not ':'");
  refused("{,}", "line 1 column 2: expected a key in double quotes, not ','");
  refused("[1,,2]", "line 1 column 4: expected a value, not ','");
  refused("{'a': 1}", "line 1 column 2: expected a key in double quotes, not '''");
  refused("{\"a\" 1}", "line 1 column 6: expected a colon after key \"a\", not '1'");
  refused("{\"a\": \"b\n\"}",
          "line 1 column 7: the string that begins here has no closing quote on its line");
  refused("\"\t\"", "line 1 column 2: a control character in a string must be escaped");
  refused("\"\\x\"", "line 1 column 2: unknown escape in a string");
  refused("\"\\uD800\"", "line 1 column 2: half a surrogate pair");
  refused("\"\\uDC00\"", "line 1 column 2: half a surrogate pair");
  refused("{ /* ", "line 1 column 3: the comment that begins here has no end");
  refused("\n {\"\xFF\": 1}", "line 2 column 4: is not UTF-8");
  refused("\"\xC0\xAF\"", "line 1 column 2: is not UTF-8");
  refused("\"\xBF\xBF\"", "line 1 column 2: is not UTF-8");
  refused(std::string("\0", 1), "line 1 column 1: expected a value, not '\\x00'");
}

TEST_CASE("StrictJson: what only people write is refused and values read back as written") {
  const auto problems_of = [](const std::string& text) {
    std::vector<JsonProblem> problems;
    const std::optional<JsonValue> value = ReadStrictJson(text, problems);
    if (value.has_value()) return problems.empty() ? ToText(*value) : "a value and problems";
    return problems.empty() ? "nothing" : ToString(problems[0].place) + ": " + problems[0].text;
  };
  CHECK(problems_of("\xEF\xBB\xBF {\"a\": [1, {\"b\": -1.5e3}],\n\"c\": null} ") ==
        "{\"a\": [1, {\"b\": -1.5e3}], \"c\": null}");
  CHECK(problems_of("{\"a\": 1,}") == "line 1 column 8: a comma before the end of the object");
  CHECK(problems_of("[1, 2 ,\n]") == "line 1 column 7: a comma before the end of the list");
  CHECK(problems_of("// x\n{}") == "line 1 column 1: expected a value, not '/'");
  CHECK(problems_of("{} # x") == "line 1 column 4: something follows the end of the document: '#'");
  CHECK(problems_of("[1 /* x */]") ==
        "line 1 column 4: expected a comma or the end of the list, not '/'");
  for (const std::string word : {"NaN", "Infinity", "-Infinity"}) {
    CHECK(problems_of(word) == "line 1 column 1: expected a value, not '" + word + "'");
  }
  CHECK(problems_of("[1 2]") == "line 1 column 4: a comma is missing before '2'");
  CHECK(problems_of("{\"a\": 1, \"b\": 2, \"a\": 1}") ==
        "line 1 column 18: key \"a\" occurs twice; first at line 1 column 2");
  CHECK(problems_of(" ") == "line 1 column 2: there is no value, only blanks");
}

TEST_CASE("RelaxedJson: deep nesting is refused and does not overflow the stack") {
  const auto nested = [](const std::string& open, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) text += open;
    return ProblemsOf(text);
  };
  CHECK_THAT(nested("[", 1'000'000), ContainsSubstring("nests more than 64 levels"));
  CHECK_THAT(nested("{\"a\":", 1'000'000), ContainsSubstring("nests more than 64 levels"));
  CHECK(Reread(std::string(64, '[') + std::string(64, ']')) ==
        std::string(64, '[') + std::string(64, ']'));
  CHECK(Reread(std::string(65, '[') + std::string(65, ']')) == "refused");
}

TEST_CASE("ExactInteger: a number is an integer by its value, not by its spelling") {
  const auto is = [](const std::string& text, int64_t value) {
    CAPTURE(text);
    const auto integer = ExactInteger(text);
    REQUIRE_OK(integer.status());
    CHECK(*integer == value);
  };
  is("5e8", 500'000'000);
  is("500000000.0", 500'000'000);
  is("0.5e1", 5);
  is("1E+3", 1000);
  is("120e-1", 12);
  is("-5e8", -500'000'000);
  is("0e999999999999999999999", 0);
  is("-0.0", 0);
  is("9223372036854775807", 9223372036854775807);
  is("-9223372036854775808", -9223372036854775807 - 1);
  is("9007199254740993", 9007199254740993);  // no double
  const auto refused = [](const std::string& text, const std::string& why) {
    CAPTURE(text);
    CHECK(ExactInteger(text).status() == absl::InvalidArgumentError(why));
  };
  refused("3774873.6", "has a fraction");
  refused("5e-1", "has a fraction");
  refused("1e-400", "has a fraction");
  refused("1e20", "is out of range");
  refused("9223372036854775808", "is out of range");
  refused("1e99999999999999999999", "is out of range");
  refused("5e8x", "is not a number");
  refused("", "is not a number");
  refused("-", "is not a number");
  refused("+5", "is not a number");
  refused("0x10", "is not a number");
  refused(" 5", "is not a number");
}

TEST_CASE("NearestDouble: values do not depend on the locale and are never infinite") {
  for (const char* locale : {"C", "de_DE.UTF-8"}) {
    (void)std::setlocale(LC_ALL, locale);  // where it is installed
    CHECK(NearestDouble("2e-5").value() == 2e-5);
    CHECK(NearestDouble("0.1").value() == 0.1);
    CHECK(NearestDouble("1e-400").value() == 0);
    CHECK(NearestDouble("1e400").status() == absl::InvalidArgumentError("is out of range"));
    for (const char* text : {"NaN", "Infinity", "inf", "2,5", "2e-5x", ""}) {
      CHECK(NearestDouble(text).status() == absl::InvalidArgumentError("is not a finite number"));
    }
  }
  (void)std::setlocale(LC_ALL, "C");
}

}  // namespace
}  // namespace zero
