#include "lapse/data/unit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/testing.h"
#include "lapse/data/config.h"

namespace lapse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Unit, ThoseOfTextsAreNamedAndThoseOfTasksAreKnown) {
  EXPECT_THAT(unit_names(), ElementsAre("byte", "character", "word", "subword", "t5"));
  for (const std::string& name : unit_names()) EXPECT_EQ(unit_named(name).name, name);
  EXPECT_TRUE(unit_named("token").of_tasks);
  EXPECT_EQ(unit_named(DataConfig().unit).tag, "bpb");
}

TEST(Unit, AnUnknownOneIsAnErrorThatNamesTheNearest) {
  EXPECT_THAT(error_of([] { unit_named("words", "a.toml"); }), HasSubstr("a.toml: unknown unit \"words\""));
  EXPECT_THAT(error_of([] { unit_named("words"); }), HasSubstr("did you mean 'word'?"));
}

// What is numbered by rank is counted, and what is counted can be cut into tokens only where it is UTF-8.
TEST(Unit, FactsAgree) {
  for (const std::string& name : unit_names()) {
    const Unit& unit = unit_named(name);
    EXPECT_LE(unit.ranked, unit.counted) << name;
    EXPECT_LE(unit.counted, unit.utf8) << name;
    EXPECT_FALSE(unit.words && unit.pieces) << name;
    EXPECT_LE(unit.normalised, unit.pieces) << name;
    EXPECT_EQ(unit.perplexity, unit.metric == "perplexity") << name;
  }
}

}  // namespace
}  // namespace lapse
