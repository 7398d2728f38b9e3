#include "lapse/train/history.h"

#include <algorithm>
#include <iterator>

#include "lapse/train/config.h"

namespace lapse {

RunHistory history_of(const JsonObject& state) {
  RunHistory history{state.whole("update", 0, kMostUpdates), state.list("history")};
  for (Json& entry : history.validations) {
    // Older versions wrote null for a perplexity beyond all numbers.
    for (auto it = entry.begin(); entry.is_object() && it != entry.end();)
      it = it->is_null() ? entry.erase(it) : std::next(it);
    const auto is_number = [](const Json& value) { return value.is_number(); };
    if (!entry.is_object() || !std::all_of(entry.begin(), entry.end(), is_number))
      state.refuse("history", "a list of objects of numbers");
  }
  return history;
}

}  // namespace lapse
