#include "lapse/core/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

#include "lapse/core/random.h"
#include "lapse/core/testing.h"

namespace lapse {
namespace {

using testing::HasSubstr;

using Limits = std::numeric_limits<double>;

// What `value` becomes when it is written and read again.
template <class T>
T round_trip(T value) {
  T copy{};
  const auto section = [](T& target) {
    Field all = field("x", target, "").in(-Limits::infinity(), Limits::infinity());
    return Sections{{"s", "", {all}}};
  };
  parse_config(section(copy), config_to_toml(section(value)), "text");
  return copy;
}

TEST(ConfigText, RealsReadBackToTheLastBit) {
  for (double value : {0.0,
                       -0.0,
                       0.1,
                       1.0,
                       -3.0,
                       1e15,
                       1e16,
                       1e17,
                       1e22,
                       123456789012345680.0,
                       1e-5,
                       5e-324,
                       1e300,
                       Limits::min(),
                       Limits::max(),
                       Limits::lowest(),
                       Limits::epsilon(),
                       Limits::infinity(),
                       -Limits::infinity(),
                       1.0 / 3,
                       2.2250738585072011e-308})
    EXPECT_EQ(std::bit_cast<uint64_t>(round_trip(value)), std::bit_cast<uint64_t>(value)) << value;
  Random random(1, "reals");
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random.next());
    if (std::isfinite(value)) {
      EXPECT_EQ(round_trip(value), value);
    }
  }
}

TEST(ConfigText, RealsStayRealsAndShort) {
  EXPECT_EQ(to_toml(3.0), "3.0");
  EXPECT_EQ(to_toml(0.1), "0.1");
  EXPECT_EQ(to_toml(-0.0), "-0.0");
  EXPECT_EQ(to_toml(7e-4), "0.0007");
  EXPECT_EQ(to_toml(1e300), "1e+300");
  EXPECT_EQ(to_toml(Limits::quiet_NaN()), "nan");
  EXPECT_EQ(to_toml(-Limits::quiet_NaN()), "nan");
  EXPECT_EQ(to_toml(std::vector<double>{0.9, 1, 1e-9}), "[0.9, 1.0, 1e-09]");
  EXPECT_EQ(to_toml(std::vector<double>{}), "[]");
  EXPECT_EQ(to_toml(std::vector<int64_t>{8, -1}), "[8, -1]");
}

TEST(ConfigText, OtherTypesReadBack) {
  for (int64_t value :
       {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(round_trip(value), value);
  for (bool value : {false, true}) EXPECT_EQ(round_trip(value), value);
  for (const auto& value : {std::vector<double>{}, {1}, {0.1, -1e300, 5e-324}}) EXPECT_EQ(round_trip(value), value);
}

TEST(ConfigText, StringsReadBackWhateverTheyHold) {
  std::string ascii;
  for (char c = 0; c < 127; ++c) ascii += c;
  for (const std::string& value :
       {std::string(), ascii, std::string(1, '\x7f'), std::string("\"\"\"'''\\"), std::string("\\u0041"),
        std::string("é 語 🙂"), std::string("line\r\nline"), std::string("key = [1] # no comment")})
    EXPECT_EQ(round_trip(value), value);
}

TEST(ConfigText, AllSectionsInTheirOrder) {
  int64_t b = 1, a = 2;
  std::string c = "x\"y";
  const Sections sections = {{"two", "", {field("b", b, ""), field("a", a, "")}}, {"one", "", {field("c", c, "")}}};
  EXPECT_EQ(config_to_toml(sections), "[two]\nb = 1\na = 2\n\n[one]\nc = \"x\\\"y\"\n");
}

TEST(ConfigText, RangesInWords) {
  double real = 0;
  int64_t whole = 0;
  EXPECT_EQ(range_text(field("x", real, "")), "");
  EXPECT_EQ(range_text(field("x", real, "").in(0)), "at least 0");
  EXPECT_EQ(range_text(field("x", real, "").in(Limits::lowest(), 0.5)), "at most 0.5");
  EXPECT_EQ(range_text(field("x", real, "").in(1e-9, 1)), "1e-09 ... 1");
  EXPECT_EQ(range_text(field("x", real, "").in(0, Limits::infinity())), "0 ... inf");
  EXPECT_EQ(range_text(field("x", whole, "").in(1, 4294967296)), "1 ... 4294967296");
}

class ConfigHelp : public testing::Test {
 protected:
  double rate_ = 7e-4;
  int64_t updates_ = 2000;
  std::string name_ = "adam", path_ = "/a/path/that/is/rather/long.txt";
  Sections sections_ = {
      {"optimiser",
       "what moves the weights",
       {field("rate", rate_, "learning rate").in(0, 10).unit("per update"),
        field("updates", updates_, "how many").in(1), field("name", name_, "the rule").one_of({"adam", "sgd"})}},
      {"data", "what to read", {field("path", path_, "where")}}};
};

TEST_F(ConfigHelp, GroupsAndAligns) {
  EXPECT_EQ(config_help(sections_),
            "[optimiser]  what moves the weights\n"
            "  rate    = 0.0007                learning rate (0 ... 10, per update)\n"
            "  updates = 2000                  how many (at least 1)\n"
            "  name    = \"adam\"                the rule (one of adam, sgd)\n"
            "\n"
            "[data]  what to read\n"
            "  path    = \"/a/path/that/is/rather/long.txt\"\n"
            "                                  where\n");
}

TEST_F(ConfigHelp, ShowsTheCurrentValue) {
  set_config(sections_, "optimiser.updates=77");
  EXPECT_THAT(config_help(sections_), HasSubstr("updates = 77 "));
}

TEST_F(ConfigHelp, FitsIn120ColumnsAndLosesNoWord) {
  std::string help;
  for (int i = 0; i < 60; ++i) help += (i ? " word" : "word") + std::to_string(i);
  help += " " + std::string(150, 'x') + " end";
  sections_[1].fields.push_back(field("long", rate_, help));
  std::istringstream lines(config_help(sections_));
  std::string line, words;
  while (std::getline(lines, line)) {
    const bool one_long_word = line.ends_with("xxx");
    EXPECT_TRUE(one_long_word || line.size() <= 120) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    std::istringstream in(line);
    for (std::string word; in >> word;) words += word + " ";
  }
  EXPECT_THAT(words, HasSubstr(help));
}

TEST_F(ConfigHelp, NoFields) {
  EXPECT_EQ(config_help({}), "");
  EXPECT_EQ(config_help({{"empty", "none yet", {}}}), "[empty]  none yet\n");
}

}  // namespace
}  // namespace lapse
