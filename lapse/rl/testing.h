// What the tests of the environments share: environments with options, and observations as words.
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "lapse/rl/registry.h"

namespace lapse {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// One kind of environment with some options.
struct EnvironmentCase {
  std::string name;
  Settings settings;
};

inline std::unique_ptr<EnvironmentOptions> options_of(const EnvironmentCase& wanted) {
  for (const auto& entry : environment_table()) {
    if (entry.name != wanted.name) continue;
    auto options = entry.options();
    for (const auto& [key, value] : wanted.settings)
      for (const Field& field : options->fields())
        if (field.name == key) set_field(field, value, key);
    return options;
  }
  return nullptr;
}

/// Every environment as it is by default, and with awkward options.
inline std::vector<EnvironmentCase> environment_cases() {
  std::vector<EnvironmentCase> cases;
  for (const auto& entry : environment_table()) cases.push_back({entry.name, {}});
  cases.push_back({"corridor", {{"shortest", "3"}, {"longest", "3"}}});
  cases.push_back({"corridor", {{"shortest", "4"}, {"longest", "9"}}});
  cases.push_back({"portal", {{"rooms", "2"}}});
  cases.push_back({"portal", {{"rooms", "5"}, {"most_steps", "40"}, {"mistakes", "3"}, {"colours", "2"}}});
  cases.push_back({"portal", {{"rooms", "200"}, {"most_steps", "200"}, {"mistakes", "1"}, {"colours", "8"}}});
  cases.push_back({"portal", {{"rooms", "3"}, {"most_steps", "1"}, {"mistakes", "1"}}});
  cases.push_back({"t_maze", {{"length", "1"}}});
  cases.push_back({"t_maze", {{"length", "5"}, {"penalty", "0.3"}}});
  cases.push_back({"t_maze", {{"length", "9"}, {"shortest", "2"}}});
  cases.push_back({"t_maze", {{"length", "3"}, {"penalty", "0"}}});
  return cases;
}

/// What an agent sees: for each cell its words.
using Sight = std::vector<std::set<std::string>>;

inline Sight sight_of(const Environments& environments, int64_t i) {
  const EnvironmentShape& shape = environments.shape();
  std::vector<int32_t> bits(shape.most_words);
  environments.observe(i, 1, bits.data());
  Sight sight(shape.cells);
  const auto words = std::ssize(shape.words);
  for (const int32_t bit : bits)
    if (bit >= 0) sight.at(bit / words).insert(shape.words.at(bit % words));
  return sight;
}

/// Environment i takes the action of this name.
inline StepResult act(Environments& environments, int64_t i, const std::string& action) {
  const auto& names = environments.shape().actions;
  for (int32_t number = 0; number < std::ssize(names); ++number) {
    if (names[number] != action) continue;
    StepResult result;
    environments.step(i, 1, &number, &result);
    return result;
  }
  throw std::runtime_error("no action " + action);
}

}  // namespace lapse
