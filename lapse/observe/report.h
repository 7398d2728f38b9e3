// A record of memory as one HTML page that needs nothing else: it opens from the disk, without a network.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lapse/data/vocabulary.h"
#include "lapse/observe/recorder.h"

namespace lapse {

struct ReportOptions {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  ///< rows of the summary: name and value
  std::string configuration;                               ///< shown as it is
};

/// The page: the text, shaded by what each layer remembers of it, and the sizes of the memories.
std::string html_report(const MemoryRecord& record, const Vocabulary& vocabulary, const ReportOptions& options);

/// What can be shown and pointed at: the fewest neighbouring tokens that are whole characters.
struct Cell {
  std::string text;    ///< UTF-8; bytes that are none as \xNN
  int64_t tokens = 0;  ///< how many of the tokens it is made of
};

/// The cells of tokens that are read one after the other; `pieces`: the bytes of each.
std::vector<Cell> cells_of(const std::vector<std::string>& pieces);

/// JSON that no text within it can break out of: for the inside of a <script> element.
std::string embeddable(std::string_view json);

}  // namespace lapse
