#include "lapse/cli/verbs.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/forgetting/table.h"

namespace lapse {
namespace {

std::string flag_of(const Field& field) {
  std::string flag = "--" + field.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

[[noreturn]] void refuse(const CLI::App& verb, const std::string& argument, std::vector<std::string> flags) {
  for (const auto* option : verb.get_options())
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  if (argument.rfind("-", 0) != 0)
    fail(fmt::format("unexpected argument '{}'; see lapse {} --help", argument, verb.get_name()));
  fail(fmt::format("unknown flag {}{}; see lapse {} --help", argument, did_you_mean(argument, flags), verb.get_name()));
}

}  // namespace

void refuse_extras(const CLI::App& verb) {
  const auto extras = verb.remaining();
  if (!extras.empty()) refuse(verb, extras[0], {});
}

void set_evaluation_options(const CLI::App& verb, const Checkpoint& checkpoint) {
  const Fields fields = checkpoint.config().method().evaluation_fields();
  std::vector<std::string> flags;
  for (const auto& field : fields) flags.push_back(flag_of(field));
  const auto extras = verb.remaining();
  for (size_t i = 0; i < extras.size(); ++i) {
    const size_t equals = extras[i].find('=');
    const std::string flag = extras[i].substr(0, equals);
    const auto found = std::find(flags.begin(), flags.end(), flag);
    if (found == flags.end()) refuse(verb, flag, flags);
    if (equals == std::string::npos && i + 1 == extras.size()) fail(flag + " needs a value");
    set_field(fields[found - flags.begin()], equals == std::string::npos ? extras[++i] : extras[i].substr(equals + 1),
              flag);
  }
}

std::string evaluation_help() {
  std::string text = "Options of the run's forgetting method:\n";
  for (const auto& entry : method_table())
    for (const auto& field : entry.options()->evaluation_fields())
      text += fmt::format("  {:<28}{}: {}\n", flag_of(field) + " VALUE", entry.name, field.help);
  return text;
}

}  // namespace lapse
