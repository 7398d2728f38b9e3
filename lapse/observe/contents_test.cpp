#include "lapse/observe/contents.h"

#include <gtest/gtest.h>

namespace lapse {
namespace {

using Cells = std::vector<std::pair<std::string, int64_t>>;

Cells cells(const std::vector<std::string>& pieces) {
  Cells all;
  for (const auto& cell : cells_of(pieces)) all.emplace_back(cell.text, cell.tokens);
  return all;
}

TEST(Cells, TokensAndCharactersStayWhole) {
  EXPECT_EQ(cells({}), Cells());
  EXPECT_EQ(cells({"a", "bc ", ""}), (Cells{{"a", 1}, {"bc ", 1}, {"", 1}}));
  EXPECT_EQ(cells({"\xC3", "\xA4", "x"}), (Cells{{"\xC3\xA4", 2}, {"x", 1}}));
  EXPECT_EQ(cells({"x\xE2\x82",
                   "\xAC"
                   "y",
                   "z"}),
            (Cells{{"x\xE2\x82\xAC"
                    "y",
                    2},
                   {"z", 1}}));
  EXPECT_EQ(cells({"\xE2", "\x82", "\xAC\xC3", "\xA4"}), (Cells{{"\xE2\x82\xAC\xC3\xA4", 4}}));
}

TEST(Cells, WhatIsNoUtf8IsSpelled) {
  EXPECT_EQ(cells({"\xFF", "a"}), (Cells{{"\\xFF", 1}, {"a", 1}}));
  EXPECT_EQ(cells({"\xC3", "a"}), (Cells{{"\\xC3", 1}, {"a", 1}}));
  EXPECT_EQ(cells({"a", "\xE2", "\x82"}), (Cells{{"a", 1}, {"\\xE2", 1}, {"\\x82", 1}}));  // the text ends too early
  EXPECT_EQ(cells({"\x80\xC3\xA4"}), (Cells{{"\\x80\xC3\xA4", 1}}));
}

}  // namespace
}  // namespace lapse
