#include "lapse/core/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lapse {

// Messages quote files and arguments, which may hold anything.
std::string one_line(const std::string& message) {
  std::string line = message;
  constexpr size_t kLongest = 1000, kEnd = 250;
  if (line.size() > kLongest) line = line.substr(0, kLongest - kEnd) + " ... " + line.substr(line.size() - kEnd);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return line;
}

void fail(const std::string& message) { throw Error(one_line(message)); }

bool is_short_for(const std::string& brief, const std::string& name) {
  if (brief.empty() || name.empty() || brief.front() != name.front() || brief.back() != name.back()) return false;
  size_t found = 0;
  for (const char c : name)
    if (found < brief.size() && c == brief[found]) ++found;
  return found == brief.size();
}

// Optimal string alignment, three rows at a time.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace lapse
