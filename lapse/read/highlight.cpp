#include "lapse/read/highlight.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/data/utf8.h"

namespace lapse {
namespace {

/// From pale to strong green of the 256-colour palette.
std::string background(int32_t count, int32_t layers) {
  static constexpr int kGreens[] = {194, 157, 120, 83, 46};
  const int32_t step = layers == 1 ? 4 : (count - 1) * 4 / (layers - 1);
  return fmt::format("\x1b[30;48;5;{}m", kGreens[step]);
}

}  // namespace

std::string highlight(const std::vector<std::string>& pieces, const std::vector<int32_t>& counts, int32_t layers,
                      bool colour) {
  std::string text;
  int32_t open = 0;  // the count of the stretch being written
  auto change = [&](int32_t count) {
    if (open == count || (!colour && (open > 0) == (count > 0))) return;
    if (open > 0) text += colour ? "\x1b[0m" : "]";
    if (count > 0) text += colour ? background(count, layers) : "[";
    open = count;
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i] == "\n") {  // a coloured line end would colour the rest of the terminal's line
      change(0);
    } else if (!begins_within_character(pieces[i])) {
      int32_t count = counts[i];
      for (size_t j = i + 1; j < pieces.size() && begins_within_character(pieces[j]); ++j)
        count = std::max(count, counts[j]);
      change(count);
    }
    text += pieces[i];
  }
  change(0);
  return text;
}

}  // namespace lapse
