// SentencePiece models: the input as it stands, and with the 256 bytes that a usable model has, which would make every
// seed large.
#include <fmt/format.h>

#include "fuzz.h"
#include "lapse/data/subword.h"
#include "lapse/data/t5_pieces.h"

namespace {

using lapse::require;

/// As protocol buffers have it: pieces {1: "<0x0A>", 3: BYTE}, and a trainer's settings that ask for them.
const std::string& bytes_of_a_model() {
  static const std::string bytes = [] {
    std::string all = "\x12\x03\x98\x02\x01";  // trainer_spec {byte_fallback: true}
    for (int byte = 0; byte < 256; ++byte) all += fmt::format("\x0a\x0a\x0a\x06<0x{:02X}>\x18\x06", byte);
    return all;
  }();
  return bytes;
}

void read(const std::string& model) {
  lapse::refused([&] {
    const lapse::Subwords subwords(model, "input");
    for (const std::string text : {"A text, é ☃\n of two lines.\n", "\xFF \xE2\x96\x81<s>"}) {
      std::string back;
      for (const int32_t id : subwords.encode(text)) back += subwords.decode(id);
      require(back == text, "a text is not given back", back);
    }
  });
  lapse::refused([&] {
    const lapse::T5Pieces pieces(model, "input");
    for (const std::string text : {"A text, é ☃\n of two lines.\n", "\xE2\x96\x81<s>\t"}) {
      std::vector<lapse::TextBytes> bytes;
      lapse::TextBytes all;
      for (const int32_t id : pieces.encode(text, bytes, text[0] == 'A')) pieces.decode(id);
      for (const auto& one : bytes) all += one;
      require(bytes.empty() || all.all == std::ssize(text), "pieces do not stand for all of the text", text);
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string model = lapse::as_text(data, size);
  read(model);
  read(model + bytes_of_a_model());
  return 0;
}
