#include "lapse/cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <regex>

#include "lapse/cli/program.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/config_text.h"
#include "lapse/core/error.h"

namespace lapse {
namespace {

constexpr size_t kColumns = 120, kNames = 32;
constexpr size_t kFewChoices = 5;  // that stand in the place of a value's name

/// What the verbs are for, in the order of the help. A verb that is not here comes last.
const std::vector<std::pair<std::string, std::vector<std::string>>> kGroups = {
    {"Begin", {"init", "tokenizer"}},
    {"Train", {"train", "prune"}},
    {"Read and write", {"eval", "generate", "import", "export"}},
    {"Look", {"info", "inspect", "serve", "play", "task", "plot"}},
    {"Check", {"golden"}},
};
constexpr const char* kOtherVerbs = "More";

std::string group_of(const std::string& verb) {
  for (const auto& [group, verbs] : kGroups)
    if (std::ranges::find(verbs, verb) != verbs.end()) return group;
  return kOtherVerbs;
}

/// "lapse tokenizer train".
std::string full_name(const CLI::App& verb) {
  return verb.get_parent() == nullptr ? verb.get_name() : full_name(*verb.get_parent()) + " " + verb.get_name();
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& verbs) {
  std::vector<std::string> names;
  for (const auto* verb : verbs) names.push_back(verb->get_name());
  return names;
}

std::vector<const CLI::App*> inner_verbs(const CLI::App& verb) { return verb.get_subcommands(nullptr); }

const CLI::App* inner_verb(const CLI::App& verb, const std::string& name) {
  const auto verbs = inner_verbs(verb);
  const auto found = std::ranges::find(verbs, name, [](const CLI::App* one) { return one->get_name(); });
  return found == verbs.end() ? nullptr : *found;
}

/// What a validator says of the value, after the type's own name: "0 ... 100", "{a,b}".
std::string limits(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  return colon == type.npos ? "" : type.substr(colon + 1);
}

class Format : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* verb, std::string name, CLI::AppFormatMode mode) const override {
    const std::string text = CLI::Formatter::make_help(verb, name, mode);
    return CLI::detail::find_and_replace(text, "\n\n\n", "\n\n");
  }
  std::string make_usage(const CLI::App* verb, std::string) const override {
    return fmt::format("\nusage: {}\n", usage(*verb));
  }
  std::string make_description(const CLI::App* verb) const override { return verb->get_description() + "\n"; }
  std::string make_positionals(const CLI::App* verb) const override {
    const auto all = verb->get_options([](const CLI::Option* option) { return option->get_positional(); });
    return all.empty() ? "" : make_group("Arguments", true, all);
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string name = positional ? value_name(*option) : option->get_name(false, true);
    if (!positional && takes_value(*option)) name += " " + value_name(*option);
    if (takes_several(*option)) name += " ...";
    std::string text = option->get_description();
    std::vector<std::string> notes;
    if (const auto names = choices(*option); names.size() > kFewChoices)
      notes.push_back(fmt::format("one of {}", fmt::join(names, ", ")));
    if (const auto limit = limits(*option); !limit.empty() && limit[0] != '{') notes.push_back(limit);
    if (!option->get_default_str().empty()) notes.push_back("default: " + option->get_default_str());
    if (option->get_required()) notes.push_back("required");
    if (!notes.empty()) text += fmt::format(" ({})", fmt::join(notes, "; "));
    return entry(name, text);
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    return entry(verb->get_name(), verb->get_description());
  }
  std::string make_subcommands(const CLI::App* verb, CLI::AppFormatMode) const override {
    std::vector<std::string> groups;
    for (const auto& [group, verbs] : kGroups) groups.push_back(group);
    groups.push_back(kOtherVerbs);
    if (verb->get_parent() != nullptr) return make_list("Verbs", inner_verbs(*verb));
    std::string text;
    for (const auto& group : groups) {
      auto verbs = inner_verbs(*verb);
      std::erase_if(verbs, [&](const CLI::App* one) { return group_of(one->get_name()) != group; });
      text += make_list(group, verbs);
    }
    return text;
  }

 private:
  std::string make_list(const std::string& title, const std::vector<const CLI::App*>& verbs) const {
    std::string lines;
    for (const auto* verb : verbs) lines += make_subcommand(verb);
    return lines.empty() ? "" : fmt::format("\n{}:\n{}", title, lines);
  }
  static std::string entry(const std::string& name, const std::string& text) {
    std::string lines = fmt::format("  {:{}}", name, kNames - 3);
    bool fits = name.size() < kNames - 2;
    for (size_t begin = 0; begin <= text.size();) {  // a line of the text each
      const size_t end = std::min(text.find('\n', begin), text.size());
      for (const auto& line : wrapped(text.substr(begin, end - begin), kColumns - kNames)) {
        lines += (fits ? " " : "\n" + std::string(kNames, ' ')) + line;
        fits = false;
      }
      begin = end + 1;
    }
    return lines + '\n';
  }
};

}  // namespace

void set_help_format(CLI::App& program) { program.formatter(std::make_shared<Format>()); }

std::string value_name(const CLI::Option& option) {
  if (const auto names = choices(option); !names.empty() && names.size() <= kFewChoices)
    return fmt::format("{}", fmt::join(names, "|"));
  const std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  if (type == "INT") return "N";
  if (type == "FLOAT") return "X";
  if (type != "TEXT" || !option.get_positional()) return type;
  std::string name = option.get_name(true, false);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool has_sections(const CLI::App& verb) { return full_name(verb) == "lapse train"; }

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }
bool takes_several(const CLI::Option& option) { return option.get_expected_max() > 1; }

std::vector<std::string> choices(const CLI::Option& option) {
  const std::string limit = limits(option);
  if (limit.empty() || limit[0] != '{') return {};
  return CLI::detail::split(limit.substr(1, limit.size() - 2), ',');
}

std::string usage(const CLI::App& verb) {
  std::string text = full_name(verb);
  if (!inner_verbs(verb).empty())
    return text + fmt::format(" {} [...]", verb.get_parent() == nullptr
                                               ? "VERB"
                                               : fmt::format("{}", fmt::join(names_of(inner_verbs(verb)), "|")));
  bool more = false;
  for (const bool positional : {true, false}) {
    for (const auto* option : verb.get_options()) {
      if (option->get_positional() != positional) continue;
      std::string name = value_name(*option) + (takes_several(*option) ? "..." : "");
      if (!positional) name = "--" + (option->get_lnames().empty() ? "" : option->get_lnames()[0]) + " " + name;
      if (option->get_required())
        text += " " + name;
      else if (positional)
        text += " [" + name + "]";
      else
        more = more || option != verb.get_help_ptr();
    }
  }
  return text + (more ? " [...]" : "");
}

std::optional<std::vector<std::string>> help_wanted(const CLI::App& program, int argc, const char* const* argv) {
  if (argc == 1) return std::vector<std::string>();
  const std::vector<std::string> given(argv + 1, argv + argc);
  const auto end = std::ranges::find(given, "--");
  const auto flag = std::find_if(given.begin(), end, [](const auto& word) { return word == "-h" || word == "--help"; });
  if (flag == end) return std::nullopt;
  std::vector<std::string> words;
  const CLI::App* verb = &program;
  const auto enter = [&](const std::string& word) {
    const CLI::App* inner = inner_verb(*verb, word);
    if (inner != nullptr) words.push_back(word), verb = inner;
    return inner != nullptr;
  };
  auto word = given.begin();
  while (word != flag && enter(*word)) ++word;
  word = flag + 1;  // what follows says more: `lapse --help train`, `lapse train --help optimiser`
  while (word != end && enter(*word)) ++word;
  const bool has_more = !inner_verbs(*verb).empty() || has_sections(*verb);
  if (word != end && !word->starts_with('-') && has_more) words.push_back(*word);
  return words;
}

namespace {

std::string help_of(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* verb = &program;
  for (const auto& word : words) {
    const CLI::App* inner = inner_verb(*verb, word);
    if (inner == nullptr && has_sections(*verb)) return section_help(word);
    if (inner == nullptr && inner_verbs(*verb).empty())
      fail(fmt::format("{} has no verb '{}'; see {} --help", full_name(*verb), word, full_name(*verb)));
    if (inner == nullptr)
      fail(fmt::format("unknown verb '{}'{}; see {} --help", word, did_you_mean(word, names_of(inner_verbs(*verb))),
                       full_name(*verb)));
    verb = inner;
  }
  return verb->get_formatter()->make_help(verb, "", CLI::AppFormatMode::Normal);
}

/// CLI11's words for an option that was given twice, or without its value.
std::string mismatch(std::string message) {
  static const std::regex twice("At Most 1 required but received (\\d+)"), none("1 required (\\S+) missing");
  return std::regex_replace(std::regex_replace(message, twice, "given $1 times; give it once"), none, "$1 is missing");
}

}  // namespace

std::string help_text(const CLI::App& program, const std::vector<std::string>& words) {
  try {
    return help_of(program, words);
  } catch (const Error& unknown) {
    throw Misuse(unknown.what());
  }
}

std::string explain(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App* verb = &program;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  const std::string show = "; usage: " + usage(*verb);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) return mismatch(error.what()) + show;
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::RequiredError)) return error.what();
  std::vector<std::string> missing;
  for (const auto* option : verb->get_options())
    if (option->get_required() && option->count() == 0)
      missing.push_back(option->get_positional() ? value_name(*option) : option->get_name());
  if (missing.empty()) return "a verb is required" + show;
  return fmt::format("{} {} required{}", fmt::join(missing, " and "), missing.size() == 1 ? "is" : "are", show);
}

void add_help(const Command& program, Action& action) {
  const Command verb = program.add_verb("help", "Explain a verb: lapse help train");
  auto words = std::make_shared<std::vector<std::string>>();
  verb.add_option("words", *words, "a verb; of train, a section of its configuration too: lapse help train optimiser")
      .type_name("VERB");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = [=] {
      std::cout << help_text(program.app(), *words);
      return 0;
    };
  });
}

}  // namespace lapse
