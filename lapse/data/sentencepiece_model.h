// What must be known of a SentencePiece model before the library reads it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace lapse {

/// The tables by which the model replaces characters of a text before it cuts that (NFKC, lower case), which view its
/// bytes; none where the bytes are no model. SentencePiece reads a table without a look at its bounds: a damaged one
/// ends the program.
std::optional<std::vector<std::string_view>> replacement_tables(std::string_view model);

}  // namespace lapse
