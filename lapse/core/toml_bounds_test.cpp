#include "lapse/core/toml_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/config.h"
#include "lapse/core/testing.h"

namespace lapse {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string many(const std::string& what, size_t times) {
  std::string text;
  while (times-- > 0) text += what;
  return text;
}

std::string fault_of(const std::string& text) {
  const auto fault = toml_fault(text);
  return fault ? std::to_string(fault->line) + ": " + fault->what : "";
}

TEST(TomlBounds, LetsConfigurationsPass) {
  for (const std::string& text :
       {std::string(), std::string("[a]\nb = 1.5\nc = [0.1, 0.2, [3.0]]\n"), many("a.b = 1.5\n", 1000),
        "a = [" + many("0.5, ", 1000) + "]", many("[a.b]\n", 1000), many("a = [{b = 1}]\n", 100),
        "a = 'x' # " + many(".[", 100), std::string("# it's\na = 1")})
    EXPECT_EQ(fault_of(text), "") << text.substr(0, 40);
}

TEST(TomlBounds, StringsMayHoldAnything) {
  const std::string wild = many(".[{#", 30);
  for (const std::string& text :
       {"a = '" + wild + "'", "a = \"" + wild + "\\\"" + wild + "\"", "a = '''\n" + wild + "\n''" + wild + "'''",
        "a = \"\"\"" + wild + "\"\"\\\"\"" + wild + "\"\"\"\"\"", "'" + wild + "' = 1",
        std::string("a = ''\nb = \"\"\n")})
    EXPECT_EQ(fault_of(text), "") << text;
}

TEST(TomlBounds, SeesWhatFollowsAString) {
  const std::string deep = many("[", 100);
  for (const char* before : {"''", "'x'", "\"\\\\\"", "''''''", "'''x'''''", "\"\"\"\\\"\"\"\"", "\"\"\"\n\"\"\""})
    EXPECT_THAT(fault_of(std::string("a = [") + before + ", " + deep), HasSubstr("brackets")) << before;
  EXPECT_THAT(fault_of("a = 'open\nb = " + deep), StartsWith("2: "));
  EXPECT_THAT(fault_of("a = '''\n\n''' # '''\nb = " + deep), StartsWith("4: "));
}

TEST(TomlBounds, DepthIsNamedWithItsLine) {
  EXPECT_THAT(fault_of("x = 1\n\na" + many(".a", 100'000) + " = 1"), StartsWith("3: a key of more than"));
  EXPECT_THAT(fault_of("[a" + many(" . \"b\"", 100'000) + "]"), StartsWith("1: a key of more than"));
  EXPECT_THAT(fault_of("\na = " + many("[", 100'000)), StartsWith("2: more than"));
  EXPECT_THAT(fault_of("a = " + many("{a = ", 100'000)), HasSubstr("brackets"));
  EXPECT_THAT(fault_of(many("]", 1000) + many("[", 100)), HasSubstr("brackets"));
  EXPECT_THAT(fault_of(std::string(2'000'000, 'a')), HasSubstr("more than 1000000 bytes"));
}

// Each of these ends the process with a stack overflow where nothing is checked before parsing.
TEST(TomlBounds, EveryWayIntoTheParserIsGuarded) {
  int64_t number = 1;
  const Sections sections = {{"a", "", {field("b", number, "")}}};
  const std::string dots = many(".a", 200'000);
  EXPECT_EQ(error_of([&] { parse_config(sections, "[a]\na" + dots + " = 1", "run.toml"); }),
            "run.toml:2: a key of more than 16 parts");
  EXPECT_EQ(error_of([&] { set_config(sections, "a.b={a" + dots + "=1}"); }), "a.b: a key of more than 16 parts");
  EXPECT_EQ(error_of([&] { set_field(sections[0].fields[0], "[{a" + dots + "=1}]", "--b"); }),
            "--b: a key of more than 16 parts");
}

}  // namespace
}  // namespace lapse
