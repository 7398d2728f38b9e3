// Common subsequences against the table of all prefixes.
#include "lapse/observe/alignment.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lapse/core/random.h"

namespace lapse {
namespace {

int64_t longest_common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<std::vector<int64_t>> best(a.size() + 1, std::vector<int64_t>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j)
      best[i][j] = a[i - 1] == b[j - 1] ? best[i - 1][j - 1] + 1 : std::max(best[i - 1][j], best[i][j - 1]);
  return best[a.size()][b.size()];
}

/// How many pairs there are; they must be of equal tokens, in order.
int64_t pairs(const std::vector<int32_t>& a, const std::vector<int32_t>& b, const std::vector<int64_t>& partner) {
  EXPECT_EQ(partner.size(), a.size());
  int64_t count = 0, last = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (partner[i] < 0) continue;
    EXPECT_GT(partner[i], last);
    last = partner[i];
    EXPECT_LT(last, std::ssize(b));
    EXPECT_EQ(a[i], b[last]);
    ++count;
  }
  return count;
}

TEST(Aligned, IsALongestCommonSubsequence) {
  Random random(1, "test");
  const auto draw = [&](int64_t length) {
    std::vector<int32_t> tokens(length);
    for (auto& token : tokens) token = static_cast<int32_t>(random.below(3));
    return tokens;
  };
  for (int i = 0; i < 300; ++i) {
    const auto a = draw(static_cast<int64_t>(random.below(12))), b = draw(static_cast<int64_t>(random.below(12)));
    EXPECT_EQ(pairs(a, b, aligned(a, b).partner), longest_common(a, b));
  }
}

TEST(Aligned, AnEditedWordHasNoPartner) {
  const std::vector<int32_t> a = {1, 2, 3, 4, 5, 6}, b = {1, 2, 7, 8, 9, 5, 6};
  EXPECT_EQ(aligned(a, b).partner, (std::vector<int64_t>{0, 1, -1, -1, 5, 6}));
  EXPECT_EQ(aligned(a, a).partner, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(aligned({}, b).partner.empty());
  EXPECT_TRUE(aligned(a, b).whole);
}

TEST(Aligned, OfTooManyEditsOnlyTheEndsAreCommon) {
  const std::vector<int32_t> a = {1, 2, 3, 4, 5, 6}, b = {1, 7, 3, 8, 9, 6};
  EXPECT_FALSE(aligned(a, b, 5).whole);
  EXPECT_EQ(aligned(a, b, 5).partner, (std::vector<int64_t>{0, -1, -1, -1, -1, 5}));
  EXPECT_EQ(aligned(a, b, 6).partner, (std::vector<int64_t>{0, -1, 2, -1, -1, 5}));
}

std::vector<std::string> letters(const std::string& text) {
  std::vector<std::string> all;
  for (const char c : text) all.push_back({c});
  return all;
}

TEST(Aligned, EditsOfWordsAreWhole) {
  const std::string a = "to Egypt, and back", b = "to Humpty Dumpty, and back";
  Alignment found = aligned({a.begin(), a.end()}, {b.begin(), b.end()});
  EXPECT_GE(found.partner[5], 0);  // y of Egypt, as a letter
  widen_edits(found, word_numbers(letters(a)), word_numbers(letters(b)));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(found.partner[i] < 0, i >= 3 && i < 9) << i;  // "Egypt,"
  EXPECT_EQ(found.partner[10], 18);
}

/// How many tokens keep a partner where `inserted` is put into `text` at `at`.
int64_t kept(const std::string& text, size_t at, const std::string& inserted) {
  const std::string other = text.substr(0, at) + inserted + text.substr(at);
  Alignment found = aligned({text.begin(), text.end()}, {other.begin(), other.end()});
  widen_edits(found, word_numbers(letters(text)), word_numbers(letters(other)));
  return pairs({text.begin(), text.end()}, {other.begin(), other.end()}, found.partner);
}

TEST(Aligned, HowLongAWordIs) {
  // With 30 tokens it is whole; with more, in either text, it loses those alone that were edited.
  EXPECT_EQ(kept(std::string(28, 'x'), 14, "nn"), 0);
  EXPECT_EQ(kept(std::string(29, 'x'), 14, "nn"), 29);
  EXPECT_EQ(kept("a " + std::string(31, 'x') + " b", 10, "nn"), 35);
}

// A text without spaces: its bytes may agree where its characters do not.
TEST(Aligned, EditsOfCharactersAreWhole) {
  const std::string same = "\u8a18\u61b6\u306f\u6d88\u3048\u308b\u3002\u8a18\u61b6\u306f\u6b8b\u308b\u3002";
  const std::string a = same + "\u4e16" + same, b = same + "\u4e17" + same;  // E4 B8 96, E4 B8 97
  Alignment found = aligned({a.begin(), a.end()}, {b.begin(), b.end()});
  EXPECT_GE(found.partner[same.size()], 0);
  widen_edits(found, character_numbers(letters(a)), character_numbers(letters(b)));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(found.partner[i] < 0, i >= same.size() && i < same.size() + 3) << i;
}

TEST(Aligned, Characters) {
  EXPECT_EQ(character_numbers({"\x96", "a", "\xE4\xB8", "\x96x", "", "b"}), (std::vector<int64_t>{0, 1, 2, 2, 3, 4}));
  EXPECT_TRUE(character_numbers({}).empty());
}

TEST(Aligned, WordsOfSubwords) {
  EXPECT_EQ(word_numbers({" to", " Eg", "ypt", ",", "\n", "a", "b", " "}),
            (std::vector<int64_t>{0, 1, 1, 1, 2, 3, 3, 4}));
  EXPECT_TRUE(word_numbers({}).empty());
}

}  // namespace
}  // namespace lapse
