// A text as a file has it: without breaks, or as documents (data.documents).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lapse/data/unit.h"

namespace lapse {

struct Text {
  std::string bytes;
  /// Where each document ends. One more byte, a line end that is no part of it, is before the next. Empty: the text is
  /// not made of documents.
  std::vector<size_t> ends;

  /// The first place at or after `at` where the text can be cut without breaking a token of this unit, or a document.
  size_t cut(size_t at, const Unit& unit) const;
};

/// Finds the documents, as DataConfig::documents says, without the white space at their ends; blank ones are left out.
/// Error, which begins with `origin`, if there is none, or no line begins with one of the markers: with any, unless all
/// of them must occur.
Text find_documents(std::string bytes, const std::string& documents, const std::string& origin,
                    bool all_markers = true);

/// The beginning of a text, so much of it as `fraction` says, cut as load_corpus cuts the training part.
std::string_view beginning(const Text& text, double fraction, const Unit& unit);

}  // namespace lapse
