#include "lapse/observe/contents.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lapse/rl/registry.h"

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

TEST(Contents, EpisodesAreCellsWithHeadings) {
  EpisodesRecord record;
  record.begins = {0, 2};
  record.steps = {{.bits = {0, 1}, .policy = {0.25, 0.25, 0.25, 0.25}, .value = 0.5, .action = 0, .result = {}},
                  {.bits = {0}, .policy = {0, 1, 0, 0}, .value = 1, .action = 1, .result = {1, true, 1}},
                  {.bits = {0, 3}, .policy = {0, 1, 0, 0}, .value = -1, .action = 2, .result = {-0.5, false, 0}}};
  const auto maze = std::ranges::find(environment_table(), "t_maze", &EnvironmentEntry::name);
  const auto contents = contents_of(record, *maze->options());  // agent, goal up, goal down, junction
  EXPECT_EQ(contents.unit, "step");
  EXPECT_EQ(contents.headings, (std::vector<std::string>{"episode 0 · success 1 · return 1 · 2 steps",
                                                         "episode 1 · not at its end · return -0.5 · 1 steps"}));
  ASSERT_EQ(contents.cells.size(), 2);
  ASSERT_EQ(contents.cells[0].size(), 2);
  EXPECT_EQ(contents.cells[0][0].text, "goal up");
  EXPECT_EQ(contents.cells[0][0].act, "right (right 0.25, up 0.25, left 0.25, down 0.25)");
  EXPECT_EQ(contents.cells[0][1].text, "");
  EXPECT_EQ(contents.cells[1][0].text, "junction");
  EXPECT_EQ(contents.numbers[0].second, (std::vector<double>{0.5, 1, -1}));
  EXPECT_EQ(contents.numbers[1].second, (std::vector<double>{0, 1, -0.5}));
}

}  // namespace
}  // namespace lapse
