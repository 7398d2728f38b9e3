// What must be known of a SentencePiece model before the library reads it.
#pragma once

#include <optional>
#include <string_view>

namespace lapse {

/// Whether the model replaces characters of a text before it cuts that (NFKC, lower case); none where the bytes are no
/// model. SentencePiece reads the table of what to replace without a look at its bounds: a damaged one ends the
/// program.
std::optional<bool> replaces_characters(std::string_view model);

}  // namespace lapse
