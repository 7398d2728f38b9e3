// Completion for shells, made of the declared verbs and flags: for bash they become lists within completion.bash, for
// zsh one function for each verb within completion.zsh.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <iostream>

#include "lapse/cli/help.h"
#include "lapse/cli/verbs.h"
#include "lapse/train/config.h"

namespace lapse {
namespace {

constexpr const char* kBash =
#include "embedded/lapse/cli/completion.bash.inc"
    ;
constexpr const char* kZsh =
#include "embedded/lapse/cli/completion.zsh.inc"
    ;

std::string replaced(std::string text, const std::string& mark, const std::string& with) {
  text.replace(text.find(mark), mark.size(), with);
  return text;
}

/// A key of the configuration, and the values that it may have where these are few.
struct Key {
  std::string name;
  std::vector<std::string> values;
};

std::vector<Key> keys() {
  Config config;
  std::vector<Key> keys;
  for (const auto& section : config.sections())
    for (const auto& field : section.fields) {
      const bool truth = std::holds_alternative<bool*>(field.value);
      keys.push_back(
          {section.name + "." + field.name, truth ? std::vector<std::string>{"true", "false"} : field.choices});
    }
  return keys;
}

/// What a value may be.
struct Value {
  std::vector<std::string> names;  ///< these, or
  std::string kind;                ///< "files", "toml", "assignment", "any"; empty: there is no value
};

Value value_of(const CLI::Option& option) {
  if (!takes_value(option)) return {};
  if (const auto names = choices(option); !names.empty()) return {names, {}};
  const std::string name = value_name(option);
  if (name == "CONFIG.toml") return {{}, "toml"};
  if (name == "SECTION.KEY=VALUE") return {{}, "assignment"};
  constexpr const char* kPaths[] = {"FILE", "FILES", "FOLDER", "PICTURE", "RUN", "RUN2", "RUNS"};
  return {{}, std::ranges::find(kPaths, name) != std::end(kPaths) ? "files" : "any"};
}

/// Visits the program and each verb, with the words that lead there: "", "train", "tokenizer train".
void visit(const CLI::App& verb, const std::string& path,
           const std::function<void(const CLI::App&, const std::string&)>& see) {
  see(verb, path);
  for (const auto* inner : verb.get_subcommands(nullptr))
    visit(*inner, path.empty() ? inner->get_name() : path + " " + inner->get_name(), see);
}

std::vector<std::string> inner_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const auto* inner : verb.get_subcommands(nullptr)) names.push_back(inner->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const auto& name : option.get_snames()) flags.push_back("-" + name);
  for (const auto& name : option.get_lnames()) flags.push_back("--" + name);
  return flags;
}

bool is_train_help(const CLI::App& verb, const CLI::Option& option) {
  return has_sections(verb) && &option == verb.get_help_ptr();
}

std::vector<std::string> topics() {
  auto names = section_names();
  names.push_back("all");
  return names;
}

// --- bash ------------------------------------------------------------------------------------------------------------

std::string bash_case(const std::string& words, const std::string& reply) {
  return fmt::format("    '{}') REPLY='{}' ;;\n", words, reply);
}

std::string bash_script(const CLI::App& program) {
  std::string verbs, flags, values;
  visit(program, "", [&](const CLI::App& verb, const std::string& path) {
    const auto inner = inner_names(verb);
    if (!inner.empty()) {
      verbs += bash_case(path, fmt::format("{}", fmt::join(inner, " ")));
      verbs += bash_case(path.empty() ? "help" : "help " + path, fmt::format("{}", fmt::join(inner, " ")));
    }
    std::vector<std::string> all;
    int arguments = 0;
    for (const auto* option : verb.get_options()) {
      const Value value = value_of(*option);
      std::string reply = value.names.empty() && !value.kind.empty() ? "<" + value.kind + ">"
                                                                     : fmt::format("{}", fmt::join(value.names, " "));
      if (is_train_help(verb, *option)) reply = fmt::format("[]{}", fmt::join(topics(), " "));
      if (takes_several(*option)) reply = "..." + reply;
      for (const auto& flag : flags_of(*option)) {
        all.push_back(flag);
        if (!reply.empty()) values += bash_case(path + " " + flag, reply);
      }
      if (!option->get_positional() || verb.get_name() == "help") continue;
      values += bash_case(
          fmt::format("{} <argument {}>", path, takes_several(*option) ? "n" : std::to_string(++arguments)), reply);
    }
    flags += bash_case(path, fmt::format("{}", fmt::join(all, " ")));
  });
  values += bash_case("help train <argument 1>", fmt::format("{}", fmt::join(topics(), " ")));
  std::string names, assignments;
  for (const auto& key : keys()) {
    names += key.name + "= ";
    for (const auto& value : key.values) assignments += key.name + "=" + value + " ";
  }
  std::string script = replaced(kBash, "@VERBS@\n", verbs);
  script = replaced(script, "@FLAGS@\n", flags);
  script = replaced(script, "@VALUES@\n", values);
  return replaced(replaced(script, "@KEYS@", names), "@ASSIGNMENTS@", assignments);
}

// --- zsh -------------------------------------------------------------------------------------------------------------

/// The first line of a description, as a word in single quotes may hold it; what `_arguments` reads is kept apart.
std::string zsh_text(const std::string& text, const std::string& special) {
  std::string quoted;
  for (const char c : text.substr(0, text.find('\n'))) {
    if (special.find(c) != special.npos) quoted += '\\';
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted;
}

std::string zsh_action(const Value& value) {
  if (!value.names.empty()) return fmt::format("({})", fmt::join(value.names, " "));
  if (value.kind == "toml") return R"(_files -g "*.toml")";
  if (value.kind == "assignment") return "_lapse_assignment";
  return value.kind == "files" ? "_files" : " ";
}

std::string zsh_option(const CLI::App& verb, const CLI::Option& option) {
  Value value = value_of(option);
  const bool is_topic = is_train_help(verb, option);
  if (is_topic) value.names = topics();
  const bool has_value = !value.names.empty() || !value.kind.empty();
  const bool many = takes_several(option);
  const std::string message = is_topic ? "SECTION" : zsh_text(value_name(option), ":\\");
  const std::string ending = has_value ? fmt::format(":{}:{}", message, zsh_action(value)) : "";
  if (option.get_positional()) return fmt::format("    '{}{}'\n", many ? "*" : "", ending);
  const bool repeated = many || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  const auto flags = flags_of(option);
  std::string specifications;
  for (const auto& flag : flags) {
    const bool is_long = flag.starts_with("--");
    const std::string before = repeated ? "*" : flags.size() > 1 ? fmt::format("({})", fmt::join(flags, " ")) : "";
    const std::string sign = !has_value || is_topic ? "" : is_long ? "=" : "+";
    specifications +=
        fmt::format("    '{}{}{}[{}]{}'\n", before, flag, sign, zsh_text(option.get_description(), "[]\\"), ending);
  }
  return specifications;
}

std::string zsh_function(const CLI::App& verb, const std::string& path) {
  std::string name = "_lapse" + (path.empty() ? "" : "_" + path);
  std::ranges::replace(name, ' ', '_');
  std::string options;
  const bool is_help = path == "help";
  for (const auto* option : verb.get_options())
    if (!is_help || !option->get_positional()) options += zsh_option(verb, *option);
  if (is_help)
    return fmt::format(
        "{}() {{\n  if ((CURRENT == 3)) && [[ ${{words[2]}} == train ]]; then\n    compadd -- {}\n  else\n    compadd "
        "-- {}\n"
        "  fi\n}}\n\n",
        name, fmt::join(topics(), " "), fmt::join(inner_names(*verb.get_parent()), " "));
  const auto inner = verb.get_subcommands(nullptr);
  if (inner.empty())
    return fmt::format("{}() {{\n  typeset -a specifications=(\n{}  )\n  _arguments -S $specifications\n}}\n\n", name,
                       options);
  std::string verbs;
  for (const auto* one : inner)
    verbs += fmt::format("    '{}:{}'\n", one->get_name(), zsh_text(one->get_description(), ":\\"));
  return fmt::format(
      "{0}() {{\n  typeset line state\n  typeset -a specifications=(\n{1}  )\n  typeset -a verbs=(\n{2}  )\n"
      "  _arguments -A '-*' -C $specifications '1: :->verb' '*:: :->rest' && return\n  case $state in\n"
      "    verb) _describe verb verbs ;;\n"
      "    rest) ((! $+functions[{0}_${{line[1]}}])) || {0}_${{line[1]}} ;;\n  esac\n}}\n\n",
      name, options, verbs);
}

std::string zsh_script(const CLI::App& program) {
  std::string functions, names, assignments;
  visit(program, "", [&](const CLI::App& verb, const std::string& path) { functions += zsh_function(verb, path); });
  for (const auto& key : keys()) {
    names += key.name + " ";
    if (!key.values.empty()) assignments += fmt::format("{} '{}' ", key.name, fmt::join(key.values, " "));
  }
  return replaced(replaced(replaced(kZsh, "@KEYS@", names), "@ASSIGNMENTS@", assignments), "@FUNCTIONS@\n", functions);
}

}  // namespace

void add_completion(const Command& program, Action& action) {
  const Command verb =
      program.add_verb("completion", "Print a script that completes verbs, flags and values in a shell");
  auto shell = std::make_shared<std::string>();
  verb.add_option("shell", *shell, "which shell").required().check(one_of({"bash", "zsh"}));
  verb.footer("To load it into a running shell: source <(lapse completion bash)");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = [=] {
      std::cout << (*shell == "bash" ? bash_script(program.app()) : zsh_script(program.app()));
      return 0;
    };
  });
}

}  // namespace lapse
