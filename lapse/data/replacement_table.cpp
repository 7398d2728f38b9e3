#include "lapse/data/replacement_table.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lapse {
namespace {

constexpr int kMostFound = 32;    // SentencePiece has room for so many keys that begin at one place of a text
constexpr int kLongestKey = 255;  // bytes, and so the depth of the recursion below; those of NFKC have 18 at most

/// The tree as darts-clone has it: an array of units of 32 bits. A place is the index of a unit without the next byte:
/// for byte c the unit place ^ c is read, and the search goes on from it if its label is c. A place whose unit has a
/// leaf ends a key, and unit `place` has the value: where the text begins that replaces the key.
class Tree {
 public:
  Tree(std::string_view units, std::string_view texts) : units_(units), texts_(texts.size()), found_(size(), kUnseen) {}

  bool is_sound() { return size() > 0 && most_found(offset(unit(0)), 0) <= kMostFound; }

 private:
  static constexpr int kUnseen = -1, kWithin = -2, kBroken = kMostFound + 1;

  size_t size() const { return units_.size() / sizeof(uint32_t); }
  uint32_t unit(size_t at) const {
    uint32_t value = 0;
    std::memcpy(&value, units_.data() + at * sizeof(value), sizeof(value));
    return value;
  }
  static bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
  static uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }
  static uint32_t label(uint32_t unit) { return unit & 0x800000FF; }
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1 << 9)) >> 6); }

  /// The most keys that one text can end from this place on; kBroken: more than SentencePiece has room for, something
  /// outside of the table would be read, or a key has no end.
  int most_found(uint32_t place, int depth) {
    if ((place | 0xFF) >= size() || depth > kLongestKey) return kBroken;
    if (found_[place] == kWithin) return kBroken;
    if (found_[place] != kUnseen) return found_[place];
    found_[place] = kWithin;
    int most = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t next = unit(place ^ byte);
      if (label(next) != byte) continue;
      const uint32_t below = place ^ byte ^ offset(next);
      int more = most_found(below, depth + 1);
      if (has_leaf(next) && more != kBroken) more = value(unit(below)) < texts_ ? more + 1 : kBroken;
      most = std::max(most, more);
    }
    return found_[place] = std::min(most, kBroken);
  }

  std::string_view units_;
  size_t texts_;
  std::vector<int> found_;
};

}  // namespace

bool is_sound_table(std::string_view table) {
  uint32_t bytes = 0;
  if (table.size() < sizeof(bytes)) return false;
  std::memcpy(&bytes, table.data(), sizeof(bytes));
  table.remove_prefix(sizeof(bytes));
  if (bytes % sizeof(uint32_t) != 0 || bytes >= table.size() || table.back() != 0) return false;
  return Tree(table.substr(0, bytes), table.substr(bytes)).is_sound();
}

}  // namespace lapse
