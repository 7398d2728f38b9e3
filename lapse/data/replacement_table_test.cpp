#include "lapse/data/replacement_table.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lapse/core/random.h"
#include "lapse/data/t5_pieces_testing.h"

namespace lapse {
namespace {

using testing_pieces::table_of;

const std::map<std::string, std::string> kReplaced = {{"\t", " "}, {"\xEF\xBC\xA1", "A"}, {"\xC2\xBD", "1/2"},
                                                      {"a", "b"},  {"abc", "x"},          {std::string("\0q", 2), "z"}};

/// How SentencePiece reads a table, step by step, with a look at its bounds: false where it would leave them.
bool stays_within(const std::string& table, const std::string& text) {
  uint32_t bytes = 0;
  std::memcpy(&bytes, table.data(), 4);
  const auto unit = [&](uint64_t at) {
    uint32_t value = 0;
    if (at < bytes / 4) std::memcpy(&value, table.data() + 4 + at * 4, 4);
    return value;
  };
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1 << 9)) >> 6); };
  uint32_t at = offset(unit(0));
  int found = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    at ^= byte;
    if (at >= bytes / 4) return false;
    const uint32_t here = unit(at);
    if ((here & 0x800000FF) != byte) return true;
    at ^= offset(here);
    if (((here >> 8) & 1) == 0) continue;
    if (at >= bytes / 4 || (unit(at) & 0x7FFFFFFF) >= table.size() - 4 - bytes || ++found > 32) return false;
  }
  return true;
}

TEST(ReplacementTable, ThoseOfRulesAreSound) {
  EXPECT_TRUE(is_sound_table(table_of(kReplaced)));
  EXPECT_TRUE(is_sound_table(table_of({{std::string(40, 'k'), "k"}}))) << "a long key";
  for (const auto& [key, value] : kReplaced) EXPECT_TRUE(stays_within(table_of(kReplaced), key + key));
}

TEST(ReplacementTable, DamagedOnesAreNot) {
  const std::string table = table_of(kReplaced);
  for (const size_t size : {size_t{0}, size_t{3}, size_t{4}, table.size() / 2, table.size() - 1})
    EXPECT_FALSE(is_sound_table(table.substr(0, size))) << size;
  std::string loop = table_of({{"a", "b"}});
  const uint32_t root = 256;
  const uint32_t back_to_root = ('a' << 10) | 1 << 8 | 'a';  // (root + 'a') ^ 'a' = root
  std::memcpy(loop.data() + 4 + (root + 'a') * 4, &back_to_root, 4);
  EXPECT_FALSE(is_sound_table(loop)) << "a key without end";
  std::map<std::string, std::string> nested;
  for (int n = 1; n <= 32; ++n) nested[std::string(n, 'k')] = "k";
  EXPECT_TRUE(is_sound_table(table_of(nested)));
  nested[std::string(33, 'k')] = "k";
  EXPECT_FALSE(is_sound_table(table_of(nested))) << "more keys in one than SentencePiece has room for";
}

// Random damage: what is called sound is read within its bounds, whatever the text.
TEST(ReplacementTable, SoundOnesAreReadWithinTheirBounds) {
  const std::string table = table_of(kReplaced);
  Random random(1, "damage");
  int sound = 0, left = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = table;
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      // A byte of a unit that is used: others are zero, and no text leads there.
      size_t at = 0;
      do at = 4 + random.below(damaged.size() - 4);
      while (table[at] == 0);
      damaged[at] = static_cast<char>(random.below(256));
    }
    const bool is_sound = is_sound_table(damaged);
    sound += is_sound;
    for (int t = 0; t < 200; ++t) {
      std::string text;
      for (int i = 0; i < 3; ++i) {
        auto key = std::next(kReplaced.begin(), static_cast<int64_t>(random.below(kReplaced.size())))->first;
        key.resize(1 + random.below(key.size()));
        text += random.below(4) == 0 ? std::string(1, static_cast<char>(random.below(256))) : key;
      }
      const bool within = stays_within(damaged, text);
      left += !within;
      ASSERT_TRUE(within || !is_sound) << round;
    }
  }
  EXPECT_GT(sound, 50);
  EXPECT_GT(left, 50) << "the damage leads out of no table: this shows nothing";
}

}  // namespace
}  // namespace lapse
