#include "lapse/core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Example {
  double rate = 7e-4, anything = 1, span = 8;
  int64_t updates = 2000, offset = 0;
  bool decay = true;
  std::string name = "adam", path = "here";
  std::vector<double> split = {0.9, 0.1};

  Sections sections() {
    return {{"optimiser",
             "what moves the weights",
             {field("rate", rate, "learning rate").in(0, 10).unit("per update"),
              field("updates", updates, "how many").in(1), field("decay", decay, "whether"),
              field("name", name, "which").one_of({"adam", "sgd"}), field("anything", anything, "any number")}},
            {"data",
             "what to read",
             {field("path", path, "where"), field("split", split, "parts").in(0, 1),
              field("offset", offset, "where to begin"), field("span", span, "how far").in(0, kInfinity)}}};
  }
};

class Config : public testing::Test {
 protected:
  void parse(const std::string& text) { parse_config(sections_, text, "run.toml"); }
  void set(const std::string& assignment) { set_config(sections_, assignment); }
  std::string parse_error(const std::string& text) {
    return error_of([&] { parse(text); });
  }
  std::string set_error(const std::string& assignment) {
    return error_of([&] { set(assignment); });
  }

  Example example_;
  Sections sections_ = example_.sections();
};

TEST(ConfigPaths, BecomeAbsoluteBesideTheFileOrInTheWorkingDirectory) {
  std::string text, other = "", number = "3";
  const Sections sections = {
      {"data", "", {field("text", text, "").path(), field("other", other, "").path(), field("number", number, "")}}};
  const fs::path folder = fs::path(testing::TempDir()) / "config_paths";
  make_folder(folder);
  write_file(folder / "here.txt", "x");
  write_file(folder / "run.toml", "[data]\ntext = 'here.txt'\nnumber = 'here.txt'\n");
  EXPECT_THAT(read_config(sections, folder / "run.toml"), ElementsAre("data.text", "data.number"));
  EXPECT_EQ(text, (folder / "here.txt").string());
  EXPECT_EQ(other, "") << "no path stays no path";
  EXPECT_EQ(number, "here.txt") << "only paths are looked for";
  write_file(folder / "run.toml", "[data]\ntext = 'elsewhere.txt'\nother = '/absolute'\n");
  read_config(sections, folder / "run.toml");
  EXPECT_EQ(text, (fs::current_path() / "elsewhere.txt").string());
  EXPECT_EQ(other, "/absolute");
  set_config(sections, "data.text=here.txt");
  EXPECT_EQ(text, (fs::current_path() / "here.txt").string());
  set_config(sections, "data.text=");
  EXPECT_EQ(text, "");
  parse_config(sections, "data.text = 'as/it/stands'", "a checkpoint");
  EXPECT_EQ(text, "as/it/stands");
  fs::remove_all(folder);
}

TEST_F(Config, ReadsEveryTypeAndKeepsWhatIsNotNamed) {
  parse(
      "# comment\n[optimiser]\nrate = 1e-3\nupdates = 1_000\ndecay = false\nname = 'sgd'\n"
      "[data]\nsplit = [1, 0.5,\n 0]\noffset = -3\n");
  EXPECT_EQ(example_.rate, 1e-3);
  EXPECT_EQ(example_.updates, 1000);
  EXPECT_FALSE(example_.decay);
  EXPECT_EQ(example_.name, "sgd");
  EXPECT_THAT(example_.split, ElementsAre(1, 0.5, 0));
  EXPECT_EQ(example_.offset, -3);
  EXPECT_EQ(example_.path, "here");
}

TEST_F(Config, AcceptsOtherSpellingsOfTheSameToml) {
  parse("optimiser.rate = 2\ndata = {path = \"a # b\\u00e9\", split = []}");
  EXPECT_EQ(example_.rate, 2);
  EXPECT_EQ(example_.path, "a # bé");
  EXPECT_THAT(example_.split, ElementsAre());
  parse("");
  parse("\xef\xbb\xbf# mark of byte order\r\n[data]\r\n");
}

TEST_F(Config, ReadsAFileAndNamesItInErrors) {
  TestFolder folder;
  write_file(folder / "run.toml", "[optimiser]\nrate = 3\n");
  read_config(sections_, folder / "run.toml");
  EXPECT_EQ(example_.rate, 3);
  write_file(folder / "run.toml", "[optimiser]\nrate = 30\n");
  EXPECT_THAT(error_of([&] { read_config(sections_, folder / "run.toml"); }),
              HasSubstr((folder / "run.toml").string() + ":2: "));
  EXPECT_THAT(error_of([&] { read_config(sections_, folder / "none.toml"); }), HasSubstr("No such file"));
}

TEST_F(Config, MalformedTomlIsAnErrorWithItsLine) {
  for (const char* text :
       {"[optimiser]\n\nrate 1", "[optimiser]\n\nrate =\n", "[data]\n\npath = \"open\n", "[data]\n\n[data]",
        "[data]\npath='a'\npath='b'", "[data]\n\noffset = 9223372036854775808", "[data]\n\npath = \"\xff\"",
        "[data]\n\nsplit = [1,]]", "[data]\n\n[$]", "\n\n[é]", "[data]\n\ngröße = 1", "[data]\n\nspan = é"})
    EXPECT_THAT(parse_error(text), AllOf(HasSubstr("run.toml:3: "), Not(HasSubstr("\n")))) << text;
  EXPECT_THAT(parse_error("a = " + std::string(100'000, '[')), HasSubstr("run.toml:1: "));
  EXPECT_THAT(parse_error("Call me Ishmael."), AllOf(HasSubstr("run.toml:1: "), HasSubstr("this file has none")));
  EXPECT_THAT(parse_error("[data]\nCall me Ishmael."), Not(HasSubstr("this file has none")));
}

TEST_F(Config, UnknownSectionsAndKeysAreToldApart) {
  EXPECT_EQ(parse_error("\n[optimzier]\nrate = 1"),
            "run.toml:2: unknown section [optimzier] (did you mean 'optimiser'?)");
  EXPECT_EQ(parse_error("[scheduling]"), "run.toml:1: unknown section [scheduling]; known are optimiser, data");
  EXPECT_EQ(parse_error("[optimiser]\nraet = 1"),
            "run.toml:2: unknown key 'raet' in [optimiser] (did you mean 'rate'?)");
  EXPECT_EQ(parse_error("[data]\nworkers = 1"),
            "run.toml:2: unknown key 'workers' in [data]; known are path, split, offset, span");
  EXPECT_EQ(parse_error("[data]\nrate = 1"), "run.toml:2: unknown key 'rate' in [data]; it belongs to [optimiser]");
}

TEST_F(Config, MisplacedKeysAreExplained) {
  EXPECT_EQ(parse_error("rate = 1"), "run.toml:1: 'rate' stands outside its section; write it below [optimiser]");
  EXPECT_EQ(parse_error("seed = 1"), "run.toml:1: 'seed' stands outside a section; sections are optimiser, data");
  EXPECT_EQ(parse_error("[[data]]\npath = ''"),
            "run.toml:1: 'data' is a section; write its keys below one header [data]");
  EXPECT_THAT(parse_error("data = 1"), HasSubstr("'data' is a section"));
  EXPECT_THAT(parse_error("[optimiser]\n[optimiser.data]\npath = ''"),
              HasSubstr("run.toml:2: unknown key 'data' in [optimiser]; the section [data] stands by itself"));
  EXPECT_THAT(parse_error("[data.path]\nx = 1"),
              HasSubstr("data.path: expected a string, such as \"text\"; got a table"));
}

TEST_F(Config, WrongTypesAreErrors) {
  const std::pair<const char*, const char*> cases[] = {
      {"[optimiser]\nrate = 'fast'", "optimiser.rate: expected a number, such as 0.5 or 1e-3; got \"fast\""},
      {"[optimiser]\nrate = true", "optimiser.rate: expected a number, such as 0.5 or 1e-3; got true"},
      {"[optimiser]\nrate = [1]", "optimiser.rate: expected a number, such as 0.5 or 1e-3; got a list"},
      {"[optimiser]\nupdates = 1.5", "optimiser.updates: expected an integer, such as 12; got 1.5"},
      {"[optimiser]\nupdates = 1e5", "optimiser.updates: expected an integer; write 100000 instead of 100000.0"},
      {"[optimiser]\nupdates = inf", "optimiser.updates: expected an integer, such as 12; got inf"},
      {"[optimiser]\nupdates = true", "optimiser.updates: expected an integer, such as 12; got true"},
      {"[optimiser]\ndecay = 1", "optimiser.decay: expected true or false; got 1"},
      {"[data]\npath = 2020-01-01", "data.path: expected a string, such as \"text\"; got a date or time"},
      {"[data]\nsplit = 1.0", "data.split: expected a list of numbers, such as [0.5, 1e-3]; got 1.0"},
      {"[data]\nsplit = [1, 'a']",
       "data.split: expected a list of numbers, such as [0.5, 1e-3]; got a list with \"a\""},
      {"[data]\nsplit = [[1]]", "data.split: expected a list of numbers, such as [0.5, 1e-3]; got a list with a list"}};
  for (const auto& [text, message] : cases) EXPECT_EQ(parse_error(text), std::string("run.toml:2: ") + message);
}

TEST_F(Config, RangesAreInclusive) {
  for (const char* text : {"optimiser.rate=0", "optimiser.rate=10", "optimiser.updates=1", "data.split=[0,1]"})
    set(text);
  EXPECT_EQ(set_error("optimiser.rate=10.000001"),
            "optimiser.rate: 10.000001 is out of range; give 0 ... 10 per update");
  EXPECT_THAT(set_error("optimiser.rate=-1e-300"), HasSubstr("-1e-300 is out of range"));
  EXPECT_EQ(set_error("optimiser.updates=0"), "optimiser.updates: 0 is out of range; give at least 1");
  EXPECT_THAT(set_error("data.split=[0.5, 2]"), HasSubstr("data.split: 2 is out of range; give 0 ... 1"));
  EXPECT_THAT(example_.split, ElementsAre(0, 1));
}

TEST_F(Config, NoRangeAdmitsNanAndOnlyAnInfiniteBoundInfinity) {
  for (const char* key : {"optimiser.rate", "optimiser.anything", "data.span"})
    EXPECT_THAT(set_error(key + std::string("=nan")), HasSubstr("nan is out of range")) << key;
  EXPECT_EQ(set_error("optimiser.anything=inf"), "optimiser.anything: inf is out of range; give a finite number");
  EXPECT_THAT(set_error("optimiser.anything=-inf"), HasSubstr("-inf is out of range"));
  EXPECT_THAT(set_error("data.split=[nan]"), HasSubstr("nan is out of range"));
  set("data.span=inf");
  EXPECT_EQ(example_.span, kInfinity);
  double from_zero = 1;
  EXPECT_NE(error_of([&] { set_field(field("x", from_zero, "").in(0), "inf", "x"); }), "");
}

TEST_F(Config, IntegersReachTheirLimits) {
  set("data.offset=-9223372036854775808");
  EXPECT_EQ(example_.offset, std::numeric_limits<int64_t>::min());
  set("data.offset=9223372036854775807");
  EXPECT_EQ(example_.offset, std::numeric_limits<int64_t>::max());
  EXPECT_THAT(set_error("data.offset=9223372036854775808"), HasSubstr("expected an integer"));
}

TEST_F(Config, ValuesThatAProgramGaveAreCheckedAlike) {
  const auto check = [&] {
    for (const auto& section : sections_) check_values(section.fields, section.name);
  };
  check();
  example_.name = "Adam";
  EXPECT_EQ(error_of(check), set_error("optimiser.name=Adam"));
  example_.name = "adam", example_.split = {0.5, 1.5};
  EXPECT_THAT(error_of(check), HasSubstr("data.split: 1.5 is out of range"));
  example_.split = {}, example_.rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(error_of(check), HasSubstr("optimiser.rate: nan is out of range"));
}

TEST_F(Config, ChoicesAreChecked) {
  EXPECT_EQ(set_error("optimiser.name=adma"),
            "optimiser.name: there is no 'adma' (did you mean 'adam'?); give one of adam, sgd");
  EXPECT_EQ(set_error("optimiser.name="), "optimiser.name: there is no ''; give one of adam, sgd");
  EXPECT_EQ(example_.name, "adam");
}

TEST_F(Config, TheFirstErrorInTheFileIsReported) {
  EXPECT_THAT(parse_error("[optimiser]\nzzz = 1\naaa = 1"), HasSubstr("run.toml:2: "));
  EXPECT_THAT(parse_error("[zzz]\n[aaa]"), HasSubstr("run.toml:1: "));
}

TEST_F(Config, SetTakesTomlAndBareWords) {
  for (const char* word : {"word", "2024/run-1", "1e3", "true", "a=b.c", "a b", "[x]", "2020-01-01", "C:\\new", "é",
                           "say \"so\"", "#1", ""}) {
    set(std::string("data.path=") + word);
    EXPECT_EQ(example_.path, word);
  }
  set("data.path = \"quoted\\n\" ");
  EXPECT_EQ(example_.path, "quoted\n");
  set("data.path='C:\\new'");
  EXPECT_EQ(example_.path, "C:\\new");
  set(" optimiser.rate = 1e-3");
  EXPECT_EQ(example_.rate, 1e-3);
  set("data.split=[1, 0]");
  EXPECT_THAT(example_.split, ElementsAre(1, 0));
  set("optimiser.decay=false");
  EXPECT_FALSE(example_.decay);
}

TEST_F(Config, SetErrors) {
  for (const char* text : {"", "optimiser", "optimiser.rate", "raet=1", "raet=1.5", "=1"})
    EXPECT_EQ(set_error(text), "'" + std::string(text) + "' is not of the form section.key=value");
  for (const char* text : {"rate=1", "rate=1.5"})
    EXPECT_EQ(set_error(text), "'" + std::string(text) + "' lacks its section: 'rate' belongs to [optimiser]");
  EXPECT_EQ(set_error("optimzier.rate=1"),
            "'optimzier.rate=1': unknown section [optimzier] (did you mean 'optimiser'?)");
  EXPECT_EQ(set_error("optimiser.raet=1"),
            "'optimiser.raet=1': unknown key 'raet' in [optimiser] (did you mean 'rate'?)");
  EXPECT_THAT(set_error(".rate=1"), HasSubstr("unknown section []"));
  EXPECT_THAT(set_error("optimiser.=1"), HasSubstr("unknown key ''"));
  EXPECT_THAT(set_error("optimiser.a.b=1"), HasSubstr("unknown key 'a.b'"));
  EXPECT_THAT(set_error("data.path='open"), HasSubstr("not a finished string"));
  EXPECT_THAT(set_error("data.path=\xff"), HasSubstr("UTF-8"));
  EXPECT_EQ(example_.path, "here");
}

TEST_F(Config, SetTakesOneValueOnly) {
  for (const char* value : {"", "fast", "1 2", "1\nupdates=2", "1,2", "0x", "é", "1é", "1e400", ".5"})
    EXPECT_THAT(set_error(std::string("optimiser.rate=") + value), HasSubstr("optimiser.rate: expected a number"))
        << value;
  EXPECT_EQ(example_.rate, 7e-4);
}

TEST_F(Config, SetFieldBeginsMessagesWithItsOrigin) {
  set_field(sections_[0].fields[1], "12", "--updates");
  EXPECT_EQ(example_.updates, 12);
  EXPECT_EQ(error_of([&] { set_field(sections_[0].fields[1], "0", "--updates"); }),
            "--updates: 0 is out of range; give at least 1");
  EXPECT_EQ(error_of([&] { set_field(sections_[0].fields[1], "many", "--updates"); }),
            "--updates: expected an integer, such as 12; got 'many'");
}

}  // namespace
}  // namespace lapse
