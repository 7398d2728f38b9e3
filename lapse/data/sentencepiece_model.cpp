#include "lapse/data/sentencepiece_model.h"

#include <cstdint>
#include <limits>

namespace lapse {
namespace {

// sentencepiece_model.proto: ModelProto has two NormalizerSpecs, for a text and for what is decoded.
constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kTable = 2;

/// The fields of a protocol buffers message, one after the other. Stricter than the library: what it might read in
/// another way is not sound.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  uint64_t number = 0;
  std::string_view bytes;  ///< of a text or of a message within; else empty

  bool next() {
    if (rest_.empty() || !sound_) return false;
    const uint64_t tag = varint();
    number = tag >> 3, bytes = {};
    sound_ = sound_ && number > 0 && tag <= std::numeric_limits<uint32_t>::max();
    switch (tag & 7) {
      case 0:
        varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        sound_ = false;  // groups, which SentencePiece does not write
    }
    return sound_;
  }
  bool sound() const { return sound_; }

 private:
  std::string_view take(uint64_t size) {
    sound_ = sound_ && size <= rest_.size();
    if (!sound_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (byte.empty()) return 0;
      value |= static_cast<uint64_t>(byte[0] & 0x7F) << shift;
      if ((byte[0] & 0x80) == 0) return value;
    }
    return sound_ = false;
  }

  std::string_view rest_;
  bool sound_ = true;
};

}  // namespace

std::optional<std::vector<std::string_view>> replacement_tables(std::string_view model) {
  std::vector<std::string_view> tables;
  Fields fields(model);
  while (fields.next()) {
    if (fields.number != kNormalizer && fields.number != kDenormalizer) continue;
    Fields settings(fields.bytes);
    while (settings.next())
      if (settings.number == kTable && !settings.bytes.empty()) tables.push_back(settings.bytes);
    if (!settings.sound()) return std::nullopt;
  }
  return fields.sound() ? std::optional(tables) : std::nullopt;
}

}  // namespace lapse
