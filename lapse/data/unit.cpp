#include "lapse/data/unit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lapse/core/error.h"

namespace lapse {
namespace {

constexpr Unit kUnits[] = {
    {.name = "byte", .metric = "bits per byte", .tag = "bpb"},
    {.name = "character",
     .metric = "bits per character",
     .tag = "bpc",
     .reported = true,
     .utf8 = true,
     .counted = true},
    {.name = "word",
     .metric = "perplexity",
     .tag = "ppl",
     .perplexity = true,
     .reported = true,
     .utf8 = true,
     .words = true,
     .counted = true,
     .ranked = true},
    {.name = "subword", .metric = "bits per token", .tag = "bpt", .pieces = true},
    {.name = "t5", .metric = "bits per token", .tag = "bpt", .utf8 = true, .pieces = true, .normalised = true},
    {.name = "token", .metric = "bits per token", .tag = "bpt", .of_tasks = true, .utf8 = true, .words = true},
};

}  // namespace

std::vector<std::string> unit_names() {
  std::vector<std::string> names;
  for (const Unit& unit : kUnits)
    if (!unit.of_tasks) names.emplace_back(unit.name);
  return names;
}

const Unit& unit_named(std::string_view name, const std::string& origin) {
  if (const auto* found = std::ranges::find(kUnits, name, &Unit::name); found != std::end(kUnits)) return *found;
  const auto names = unit_names();
  fail(fmt::format("{}unknown unit \"{}\"{}; use one of: {}", origin.empty() ? "" : origin + ": ", name,
                   did_you_mean(std::string(name), names), fmt::join(names, ", ")));
}

}  // namespace lapse
