#include "lapse/data/sentencepiece.h"

#include "lapse/core/plugin.h"

namespace lapse {

const SentencePiece& sentencepiece_plugin() {
  static const SentencePiece& plugin = [&]() -> const SentencePiece& {
    void* entry = plugin_entry("subwords", "liblapse_sentencepiece.so", "lapse_sentencepiece", Symbols::kOwn);
    return *reinterpret_cast<const SentencePiece* (*)()>(entry)();
  }();
  return plugin;
}

}  // namespace lapse
