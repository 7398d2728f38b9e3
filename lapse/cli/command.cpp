#include "lapse/cli/command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <vector>

#include "lapse/core/error.h"

namespace lapse {
namespace {

[[noreturn]] void refuse(const CLI::App& verb, const std::string& argument) {
  std::vector<std::string> flags, inner;
  std::string name = verb.get_name();
  if (const auto* group = verb.get_parent(); group->get_parent()) name = group->get_name() + " " + name;
  for (const auto* option : verb.get_options())
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  for (const auto* verbs : verb.get_subcommands({})) inner.push_back(verbs->get_name());
  if (argument.rfind("-", 0) != 0)
    fail(fmt::format("unexpected argument '{}'{}; see lapse {} --help", argument, did_you_mean(argument, inner), name));
  fail(fmt::format("unknown flag {}{}; see lapse {} --help", argument, did_you_mean(argument, flags), name));
}

}  // namespace

Argument Argument::required(bool required) const { return option_->required(required), *this; }
Argument Argument::check(const Check& check) const {
  return option_->check(CLI::Validator(check.wrong, check.shown)), *this;
}
Argument Argument::type_name(const std::string& name) const { return option_->type_name(name), *this; }
Argument Argument::shows_default() const { return option_->capture_default_str(), *this; }
Argument Argument::repeats() const { return option_->expected(1)->allow_extra_args(false)->take_all(), *this; }
Argument Argument::several() const { return option_->expected(1, 1 << 20), *this; }
Argument Argument::needs(const Argument& other) const { return option_->needs(other.option_), *this; }
Argument Argument::group(const std::string& title) const { return option_->group(title), *this; }

Command Command::add_verb(const std::string& name, const std::string& about) const {
  return Command(*app_->add_subcommand(name, about));
}
void Command::requires_verb() const { app_->require_subcommand(1); }
void Command::allows_extras() const { app_->allow_extras(); }

template <class T>
Argument Command::add_option(const std::string& names, T& value, const std::string& help) const {
  return Argument(*app_->add_option(names, value, help));
}
template Argument Command::add_option(const std::string&, std::string&, const std::string&) const;
template Argument Command::add_option(const std::string&, int&, const std::string&) const;
template Argument Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Argument Command::add_option(const std::string&, double&, const std::string&) const;
template Argument Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Argument Command::add_option(const std::string&, std::vector<int64_t>&, const std::string&) const;

Argument Command::add_setter(const std::string& names, std::function<void(const std::string&)> set,
                             const std::string& help) const {
  return Argument(*app_->add_option_function<std::string>(names, set, help));
}
Argument Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return Argument(*app_->add_flag(names, value, help));
}
Argument Command::add_flag(const std::string& names, std::function<void()> set, const std::string& help) const {
  return Argument(*app_->add_flag_callback(names, set, help));
}
void Command::set_help_flag(const std::string& names, const std::string& help) const {
  app_->set_help_flag(names, help);
}
void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::callback(std::function<void()> call) const { app_->callback(std::move(call)); }

bool Command::has(const std::string& name) const { return app_->get_option_no_throw(name) != nullptr; }

size_t Command::count(const std::string& name) const { return app_->count(name); }

void Command::refuse_extras() const {
  auto extras = app_->remaining();
  std::erase(extras, "--");  // it ends the options; CLI11 counts it as left over
  if (!extras.empty()) refuse(*app_, extras[0].substr(0, extras[0].find('=')));
  for (auto* inner : app_->get_subcommands()) Command(*inner).refuse_extras();
}

}  // namespace lapse
