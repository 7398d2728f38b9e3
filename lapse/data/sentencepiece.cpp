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

std::string text_of_piece(std::string piece, PieceKind kind) {
  if (kind == PieceKind::kByte) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};
  for (size_t at = 0; (at = piece.find(kSpaceSign, at)) != piece.npos; ++at) piece.replace(at, kSpaceSign.size(), " ");
  return piece;
}

std::string reason_of(std::string status) {
  if (const size_t at = status.find("] "); at != status.npos) status.erase(0, at + 2);
  status = status.substr(0, status.find(" or decrease character_coverage"));  // a setting that we do not offer
  while (!status.empty() && (status.back() == '\n' || status.back() == ' ')) status.pop_back();
  return status.empty() ? "no reason given" : status;
}

}  // namespace lapse
