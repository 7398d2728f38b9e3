#include "lapse/cli/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lapse/core/error.h"
#include "lapse/forgetting/table.h"

namespace lapse {
namespace {

std::string flag_of(const Field& field) {
  std::string flag = "--" + field.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

[[noreturn]] void refuse(const CLI::App& verb, const std::string& argument) {
  std::vector<std::string> flags;
  for (const auto* option : verb.get_options())
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  if (argument.rfind("-", 0) != 0)
    fail(fmt::format("unexpected argument '{}'; see lapse {} --help", argument, verb.get_name()));
  fail(fmt::format("unknown flag {}{}; see lapse {} --help", argument, did_you_mean(argument, flags), verb.get_name()));
}

}  // namespace

void refuse_extras(const CLI::App& verb) {
  const auto extras = verb.remaining();
  if (!extras.empty()) refuse(verb, extras[0].substr(0, extras[0].find('=')));
}

void add_evaluation_options(CLI::App& verb) {
  for (const auto& entry : method_table()) {
    for (const auto& field : entry.options()->evaluation_fields()) {
      const std::string flag = flag_of(field), help = entry.name + ": " + field.help;
      auto* option = verb.get_option_no_throw(flag);  // methods may share a flag
      if (option != nullptr)
        option->description(option->get_description() + "\n" + help);
      else
        verb.add_option(flag)->description(help)->type_name("VALUE")->group("Options of the run's forgetting method");
    }
  }
}

void set_evaluation_options(const CLI::App& verb, const Checkpoint& checkpoint) {
  std::set<std::string> known;
  for (const auto& field : checkpoint.config().method().evaluation_fields()) {
    const std::string flag = flag_of(field);
    known.insert(flag);
    const auto given = verb.get_option(flag)->results();
    if (!given.empty()) set_field(field, given.back(), flag);
  }
  for (const auto& entry : method_table())
    for (const auto& field : entry.options()->evaluation_fields())
      if (const std::string flag = flag_of(field); verb.count(flag) > 0 && known.count(flag) == 0)
        fail(fmt::format("{} is an option of {}; the run's method is {}", flag, entry.name,
                         checkpoint.config().method_name));
}

Tokens text_of(const Checkpoint& checkpoint, const std::string& data, const std::string& split) {
  const DataConfig& config = checkpoint.config().data;
  if (!data.empty()) return load_tokens(data, split, config, checkpoint.vocabulary());
  if (!config.path.empty()) return load_tokens(config.path, split, config, checkpoint.vocabulary());
  const std::map<std::string, std::string> files = {
      {"train", config.train_path}, {"valid", config.valid_path}, {"test", config.test_path}};
  const auto file = files.find(split);
  if (file == files.end() || file->second.empty())
    fail("the run has no file for split '" + split + "'; give one: --data FILE --split all");
  return load_tokens(file->second, "all", config, checkpoint.vocabulary());
}

}  // namespace lapse
