// The table by which a SentencePiece model replaces characters of a text.
#pragma once

#include <string_view>

namespace lapse {

/// Whether SentencePiece reads nothing outside of this table ("precompiled_charsmap"), whatever the text is. The table
/// is a search tree of what is replaced, and the texts that take its place.
bool is_sound_table(std::string_view table);

}  // namespace lapse
