// The configuration's sections in the help of `lapse train`.
#include <fmt/format.h>

#include <algorithm>

#include "lapse/cli/help.h"
#include "lapse/core/config_text.h"
#include "lapse/core/error.h"
#include "lapse/train/config.h"

namespace lapse {
namespace {

constexpr size_t kColumns = 120, kNames = 24;

}  // namespace

std::vector<std::string> section_names() {
  Config config;
  std::vector<std::string> names;
  for (const auto& section : config.sections()) names.push_back(section.name);
  return names;
}

std::string section_list() {
  Config config;
  std::string text;
  for (const auto& section : config.sections()) {
    std::string name = section.name;
    for (const auto& line : wrapped(section.help, kColumns - kNames)) {
      text += fmt::format("  {:{}}{}\n", name, kNames - 2, line);
      name.clear();
    }
  }
  return text;
}

std::string section_help(const std::string& name) {
  Config config;
  const Sections sections = config.sections();
  if (name == "all") return config_help(sections);
  const auto found = std::ranges::find(sections, name, &Section::name);
  if (found != sections.end()) return config_help({*found});
  fail(fmt::format("unknown section '{}'{}; `lapse train --help` lists the sections", name,
                   did_you_mean(name, section_names())));
}

}  // namespace lapse
