// The help: of the program, of a verb, of a section of the configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace lapse {

/// How help looks, for the program and for the verbs that are added to it afterwards.
void set_help_format(CLI::App& program);

/// "lapse train CONFIG.toml --out RUN [...]".
std::string usage(const CLI::App& verb);

/// What a value is called: "RUN", "N"; the choices joined by '|' where there are some.
std::string value_name(const CLI::Option& option);
/// Whether the option has a value, or several; else it is a flag.
bool takes_value(const CLI::Option& option);
bool takes_several(const CLI::Option& option);
/// The names that the option accepts; empty: it accepts others.
std::vector<std::string> choices(const CLI::Option& option);

/// The words that help was asked for by -h or --help anywhere, verbs first: {"train", "optimiser"}. None: it was not.
std::optional<std::vector<std::string>> help_wanted(const CLI::App& program, int argc, const char* const* argv);

/// The help on such words. Error, with the nearest name, if there is nothing of that name.
std::string help_text(const CLI::App& program, const std::vector<std::string>& words);

/// A line for what the command line lacks or has too much of, with the verb's usage where it lacks something.
std::string explain(const CLI::App& program, const CLI::ParseError& error);

/// Whether a verb's help has parts, which are the configuration's sections.
bool has_sections(const CLI::App& verb);
/// The names of the configuration's sections; one line for each; the keys of one, or of all of them ("all").
std::vector<std::string> section_names();
std::string section_list();
std::string section_help(const std::string& name);

}  // namespace lapse
