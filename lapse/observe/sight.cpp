#include "lapse/observe/sight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lapse {
namespace {

constexpr int64_t kWalk = 1000;  // steps

/// From the middle of a square to one of its cells; "" where no single arrow points there.
std::string arrow_to(int64_t cell, int64_t side) {
  static const char* const arrows[] = {"↖", "↑", "↗", "←", "", "→", "↙", "↓", "↘"};
  return side == 3 ? arrows[cell] : "";
}

}  // namespace

int64_t side_of(int64_t cells) {
  const auto side = std::llround(std::sqrt(static_cast<double>(cells)));
  return side * side == cells ? side : 0;
}

Sight sight_of(const EnvironmentShape& shape, const std::vector<int32_t>& bits) {
  const auto words = std::ssize(shape.words);
  Sight sight(shape.cells);
  for (const int32_t bit : bits)
    if (bit >= 0) sight[bit / words].insert(sight[bit / words].begin(), shape.words[bit % words]);
  return sight;
}

SightLabels::SightLabels(const EnvironmentOptions& environment) : usual_(environment.shape().words) {
  const EnvironmentShape shape = environment.shape();
  const auto world = environment.make(1, 0);
  Random random(0, "labels");
  std::vector<int32_t> bits(shape.most_words);
  for (int64_t step = 0; step < kWalk; ++step) {
    world->observe(0, 1, bits.data());
    const Sight sight = sight_of(shape, bits);
    std::erase_if(usual_, [&](const std::string& word) {
      return std::ranges::none_of(sight, [&](const auto& cell) { return std::ranges::count(cell, word) > 0; });
    });
    const auto action = static_cast<int32_t>(random.below(shape.actions.size()));
    StepResult result;
    world->step(0, 1, &action, &result);
  }
}

std::string SightLabels::of(const Sight& sight) const {
  std::vector<std::pair<std::string, std::string>> things;  // where and what; a thing in several cells comes once
  for (int64_t cell = 0; cell < std::ssize(sight); ++cell) {
    std::vector<std::string> words = sight[cell];
    std::erase_if(words, [&](const std::string& word) { return std::ranges::count(usual_, word) > 0; });
    if (words.empty()) continue;
    const std::string name = fmt::format("{}", fmt::join(words, " "));
    const auto known = std::ranges::find(things, name, [](const auto& thing) { return thing.second; });
    const std::string arrow = arrow_to(cell, side_of(std::ssize(sight)));
    if (known == things.end())
      things.emplace_back(arrow, name);
    else
      known->first += arrow;
  }
  std::string label;
  for (const auto& [arrows, name] : things)
    label += fmt::format("{}{}{}{}", label.empty() ? "" : ", ", arrows, arrows.empty() ? "" : " ", name);
  return label;
}

}  // namespace lapse
