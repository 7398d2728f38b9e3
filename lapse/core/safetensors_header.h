// The JSON header of a safetensors file: what it says, before that is compared with the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lapse {

struct SafetensorsHeader {
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;  ///< of its bytes, within the data
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr size_t kMaxDimensions = 64;  ///< as many as libraries take; the format itself sets no limit
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

/// Error where the text is not JSON of the right form, or names anything twice. Takes time and memory in proportion to
/// the text, whatever that holds.
SafetensorsHeader parse_safetensors_header(std::string_view text);

}  // namespace lapse
