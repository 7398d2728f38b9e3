#include "lapse/read/highlight.h"

#include <gtest/gtest.h>

namespace lapse {
namespace {

TEST(Highlight, BracketsWithoutColour) {
  EXPECT_EQ(highlight({"a", "b", "c", "d"}, {0, 1, 2, 0}, 2, false), "a[bc]d");
  EXPECT_EQ(highlight({"a", "b"}, {1, 1}, 2, false), "[ab]");
  EXPECT_EQ(highlight({}, {}, 2, false), "");
}

TEST(Highlight, LineEndsStayPlain) { EXPECT_EQ(highlight({"a", "\n", "b"}, {1, 1, 1}, 1, false), "[a]\n[b]"); }

TEST(Highlight, BytesOfACharacterStayTogether) {
  EXPECT_EQ(highlight({"\xC3", "\xA4", "x"}, {0, 1, 0}, 1, false), "[\xC3\xA4]x");
  EXPECT_EQ(highlight({"\xC3", "\xA4", "x"}, {1, 0, 0}, 1, false), "[\xC3\xA4]x");
}

TEST(Highlight, MoreLayersGiveAStrongerColour) {
  const auto text = highlight({"a", "b", "c"}, {1, 4, 0}, 4, true);
  EXPECT_EQ(text, "\x1b[30;48;5;194ma\x1b[0m\x1b[30;48;5;46mb\x1b[0mc");
}

}  // namespace
}  // namespace lapse
