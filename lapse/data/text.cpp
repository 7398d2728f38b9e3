#include "lapse/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <sstream>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr size_t kFarSpace = size_t{1} << 16;  // bytes

/// Moves documents to the front of a text, one after the other.
class Gathered {
 public:
  explicit Gathered(std::string bytes) : text_{std::move(bytes), {}} {
    if (!text_.bytes.ends_with('\n')) text_.bytes += '\n';
  }

  const std::string& bytes() const { return text_.bytes; }

  void add(size_t begin, size_t end) {
    const auto given =
        std::string_view(text_.bytes).substr(begin, end - begin);  // not beyond: what follows may be long
    const size_t white = given.find_first_not_of(kWhiteSpace);
    if (white == given.npos) return;
    begin += white;
    end = text_.bytes.find_last_not_of(kWhiteSpace, end - 1) + 1;
    std::memmove(text_.bytes.data() + size_, text_.bytes.data() + begin, end - begin);
    text_.ends.push_back(size_ += end - begin);
    text_.bytes[size_++] = '\n';
  }

  Text take() {
    text_.bytes.resize(size_);
    return std::move(text_);
  }

 private:
  Text text_;
  size_t size_ = 0;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Error if a marker begins no line, or none of them does and they need not all occur.
void require_markers(const std::vector<std::string>& markers, const std::vector<bool>& seen, bool all,
                     const std::string& documents, const std::string& origin) {
  if (!all && (markers.empty() || std::ranges::count(seen, true) > 0)) return;
  for (size_t i = 0; i < markers.size(); ++i)
    if (!seen[i])
      fail(fmt::format("{}: no line begins with '{}', which data.documents = \"{}\" says is between documents{}{}",
                       origin, markers[i], documents,
                       did_you_mean(documents, std::vector<std::string>{"lines", "none", "whole"}),
                       all ? "" : "; --data-documents lines, or whole, finds those of this text in another way"));
}

}  // namespace

size_t Text::cut(size_t at, const Unit& unit) const {
  if (at == 0 || at >= bytes.size()) return std::min(at, bytes.size());
  if (!ends.empty()) return *std::ranges::lower_bound(ends, at - 1) + 1;  // the last is at the end of the text
  if (unit.pieces) {  // no piece reaches across white space; in a text that has none for long, any may be cut
    const auto near = std::string_view(bytes).substr(at, kFarSpace + 1);
    const size_t space = near.find_first_of(" \n");
    if (space != near.npos || near.size() <= kFarSpace) return at + std::min(space, near.size());
  }
  if (unit.words) {
    const size_t space = bytes.find_first_of(kWhiteSpace, at - 1);
    return space == std::string::npos ? bytes.size() : space + 1;
  }
  while (at < bytes.size() && (unit.utf8 || unit.pieces) && continues_character(bytes[at])) ++at;
  return at;
}

Text find_documents(std::string bytes, const std::string& documents, const std::string& origin, bool all_markers) {
  if (documents == "none") return {std::move(bytes), {}};
  const bool lines = documents == "lines", whole = documents == "whole";
  const auto markers = lines || whole ? std::vector<std::string>() : words_of(documents);
  if (!lines && !whole && markers.empty())
    fail("data.documents is empty; give \"none\", \"lines\" or markers, as \"<doc </doc>\"");
  std::vector<bool> seen(markers.size());
  Gathered gathered(std::move(bytes));
  const std::string& text = gathered.bytes();
  size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (size_t at = begin, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    const auto marker =
        std::ranges::find_if(markers, [&](const auto& m) { return text.compare(at, m.size(), m) == 0; });
    if (!lines && marker == markers.end()) continue;
    if (!lines) seen[marker - markers.begin()] = true;
    gathered.add(begin, lines ? end : at);
    begin = end + 1;
  }
  gathered.add(begin, text.size());
  require_markers(markers, seen, all_markers, documents, origin);
  Text found = gathered.take();
  if (found.ends.empty()) fail(fmt::format("{}: data.documents = \"{}\" finds no document in it", origin, documents));
  return found;
}

std::string_view beginning(const Text& text, double fraction, const Unit& unit) {
  const auto size = static_cast<size_t>(std::llround(static_cast<double>(text.bytes.size()) * fraction));
  return std::string_view(text.bytes).substr(0, text.cut(size, unit));
}

}  // namespace lapse
