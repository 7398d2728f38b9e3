#include "lapse/serve/stops.h"

#include <gtest/gtest.h>

#include "lapse/core/random.h"

namespace lapse {
namespace {

TEST(Stops, HoldsBackWhatAStopMayBeginWith) {
  Stops stops({"END", "\n\n"});
  EXPECT_EQ(stops.add("a\n"), "a");
  EXPECT_EQ(stops.add("bE"), "\nb");
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_FALSE(stops.met());
  EXPECT_EQ(stops.add("E"), "EN");
  EXPECT_EQ(stops.add("ND. More"), "");
  EXPECT_TRUE(stops.met());
  EXPECT_EQ(stops.rest(), "");
  EXPECT_EQ(stops.add("after"), "");
}

TEST(Stops, GivesBackWhatItHeld) {
  Stops stops({"aab"});
  EXPECT_EQ(stops.add("xaa"), "x");
  EXPECT_EQ(stops.rest(), "aa");
  Stops none({});
  EXPECT_EQ(none.add("all"), "all");
}

// However a text is cut into pieces, what is shown is the text before the first stop that is whole.
TEST(Stops, AgreesWithASearchOfTheWholeText) {
  Random random(1, "stops");
  const auto draw = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += "ab"[random.below(2)];
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> texts;
    for (uint64_t n = random.below(4); n-- > 0;) texts.push_back(draw(1 + random.below(6)));
    const std::string all = draw(random.below(40));
    std::pair<size_t, size_t> first = {all.size() + 1, all.size()};  // end, begin
    for (const auto& text : texts)
      if (const size_t at = all.find(text); at != all.npos) first = std::min(first, {at + text.size(), at});
    Stops stops(texts);
    std::string shown;
    for (size_t at = 0; at < all.size() && !stops.met();) {
      const size_t length = 1 + random.below(5);
      shown += stops.add(all.substr(at, length)), at += length;
    }
    const bool met = stops.met();
    shown += stops.rest();
    EXPECT_EQ(met, first.first <= all.size());
    EXPECT_EQ(shown, all.substr(0, first.second)) << all;
  }
}

}  // namespace
}  // namespace lapse
