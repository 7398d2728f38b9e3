#include "lapse/serve/stops.h"

#include <algorithm>
#include <utility>

namespace lapse {

std::string Stops::add(const std::string& piece) {
  if (met_) return "";
  held_ += piece;
  size_t shown = held_.size(), end = held_.npos;
  for (const auto& text : texts_) {  // the one that is whole first, then the longest
    const size_t at = held_.find(text);
    if (at == held_.npos || at + text.size() > end || (at + text.size() == end && at > shown)) continue;
    shown = at, end = at + text.size(), met_ = true;
  }
  // Without a stop: the longest end that one may begin with.
  const auto may_begin = [&](size_t at) {
    return std::ranges::any_of(texts_, [&](const auto& text) { return text.starts_with(held_.substr(at)); });
  };
  if (!met_) {
    size_t longest = 0;
    for (const auto& text : texts_) longest = std::max(longest, text.size());
    shown = held_.size() - std::min(held_.size(), longest);
    while (shown < held_.size() && !may_begin(shown)) ++shown;
  }
  std::string result = held_.substr(0, shown);
  held_.erase(0, met_ ? held_.size() : shown);
  return result;
}

std::string Stops::rest() { return std::exchange(held_, ""); }

}  // namespace lapse
