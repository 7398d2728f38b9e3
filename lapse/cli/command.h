// What a program or one of its verbs takes on the command line. CLI11 parses it; its header would cost each file that
// sees it five seconds of compiling, so only the help, the completion and the program's own frame do.
#pragma once

#include <functional>
#include <string>

#include "lapse/cli/check.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lapse {

/// An argument or a flag that was declared.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument required(bool required = true) const;
  Argument check(const Check& check) const;
  /// What the help calls its value: "FILE".
  Argument type_name(const std::string& name) const;
  /// The help shows the value that its variable has now.
  Argument shows_default() const;
  /// One value each time that it is given.
  Argument repeats() const;
  /// One value or more: as many as follow.
  Argument several() const;
  /// The other one must be given too.
  Argument needs(const Argument& other) const;
  /// The title under which the help lists it; "": not at all.
  Argument group(const std::string& title) const;

 private:
  CLI::Option* option_;
};

/// Refers to what the program holds: copies are the same verb.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command add_verb(const std::string& name, const std::string& about) const;
  void requires_verb() const;
  /// For `refuse_extras`, which names the nearest flag.
  void allows_extras() const;

  /// Names: "run", or "-o,--out". T: std::string, int, int64_t, double, or a vector of strings or whole numbers.
  template <class T>
  Argument add_option(const std::string& names, T& value, const std::string& help = "") const;
  Argument add_setter(const std::string& names, std::function<void(const std::string&)> set,
                      const std::string& help) const;
  Argument add_flag(const std::string& names, bool& value, const std::string& help) const;
  Argument add_flag(const std::string& names, std::function<void()> set, const std::string& help) const;
  void set_help_flag(const std::string& names, const std::string& help) const;
  /// What the help says below the options.
  void footer(const std::string& text) const;

  /// Called once this verb's arguments are parsed.
  void callback(std::function<void()> call) const;
  bool has(const std::string& name) const;  ///< whether there is such an argument
  /// How often the argument was given.
  size_t count(const std::string& name) const;
  /// Error, with the nearest flag, if arguments are left over.
  void refuse_extras() const;

  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

}  // namespace lapse
