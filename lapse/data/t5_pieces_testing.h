// SentencePiece models made by hand, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace lapse::testing_pieces {

/// A table of replacements as SentencePiece stores it: every place of the tree has 256 units of its own.
inline std::string table_of(const std::map<std::string, std::string>& replacements) {
  std::vector<uint32_t> units(256);
  std::string texts;
  const auto new_place = [&] {
    for (uint32_t byte = 0; byte < 256; ++byte) units.push_back(byte ^ 1);  // no byte's: a unit of byte has its label
    return static_cast<uint32_t>(units.size() - 256);
  };
  const uint32_t root = new_place();
  units[0] = root << 10;
  std::map<std::string, uint32_t> places = {{"", root}};
  for (const auto& [key, value] : replacements) {
    uint32_t place = root;
    for (size_t i = 0; i < key.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(key[i]);
      const auto [found, is_new] = places.emplace(key.substr(0, i + 1), 0);
      if (is_new) {
        found->second = new_place();
        units[place + byte] = ((place + byte) ^ found->second) << 10 | byte;
      }
      if (i + 1 == key.size()) {
        units[place + byte] |= 1 << 8;
        units[found->second] = 0x80000000 | static_cast<uint32_t>(texts.size());
      }
      place = found->second;
    }
    texts += value + '\0';
  }
  const auto size = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string table(sizeof(size) + size, '\0');
  std::memcpy(table.data(), &size, sizeof(size));
  std::memcpy(table.data() + sizeof(size), units.data(), size);
  return table + texts;
}

struct MadePiece {
  std::string text;
  float score;
  int type = 1;  // 1 text, 2 unknown, 3 control, 6 byte
};

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string message(int field, const std::string& bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + bytes;
}
inline std::string number(int field, uint64_t value) { return varint(field << 3) + varint(value); }

/// The bytes of a model's file: its pieces, and a table of replacements (empty: none). It puts a space before a text,
/// and makes one of several.
inline std::string model_of(const std::vector<MadePiece>& pieces, const std::string& table) {
  std::string model;
  for (const auto& piece : pieces) {
    std::string score(sizeof(float), '\0');
    std::memcpy(score.data(), &piece.score, sizeof(float));
    model += message(1, message(1, piece.text) + varint(2 << 3 | 5) + score + number(3, piece.type));
  }
  return model + message(3, table.empty() ? "" : message(2, table));
}

}  // namespace lapse::testing_pieces
