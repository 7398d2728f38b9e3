// Configuration: each field is declared once, with default, range, unit and help; parsing, `--help`, printing and
// error messages all come from that declaration.
//
//   struct OptimiserConfig {
//     double rate = 7e-4;
//     Fields fields() { return {field("rate", rate, "learning rate after warm-up").in(0, 10).unit("per update")}; }
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "lapse/core/file.h"

namespace lapse {

/// A reference to one member of a config struct and what there is to say about it. The member's value at declaration
/// is its default; the struct must outlive the field.
struct Field {
  using Value = std::variant<int64_t*, double*, bool*, std::string*, std::vector<double>*, std::vector<int64_t>*>;

  std::string name;
  Value value;
  std::string help;
  double low = std::numeric_limits<double>::lowest();  ///< inclusive; numbers only
  double high = std::numeric_limits<double>::max();    ///< an infinite value needs an infinite bound
  std::string unit_name = {};                          ///< "timesteps", "updates", ...; may be empty
  std::vector<std::string> choices = {};               ///< strings only; empty: any
  bool is_path = false;                                ///< strings only: names a file or a folder
  std::function<bool()> is_used = {};  ///< whether, with the other values, anything depends on it; null: yes

  Field in(double lowest, double highest = std::numeric_limits<double>::max()) &&;
  Field unit(std::string name) &&;
  Field one_of(std::vector<std::string> names) &&;
  Field path() &&;
  Field used_if(std::function<bool()> used) &&;
};

using Fields = std::vector<Field>;

template <class T>
Field field(std::string name, T& value, std::string help) {
  return Field{std::move(name), Field::Value(&value), std::move(help)};
}

/// A table of the TOML file: [name].
struct Section {
  std::string name;
  std::string help;
  Fields fields;
};
using Sections = std::vector<Section>;

/// Reads a TOML file over the defaults. Errors, one line each, with file and line: malformed TOML; an unknown section
/// or key (with the nearest name); a value of the wrong type (integers are accepted for reals), out of range or not
/// among the choices. Keys that the file does not name keep their values. A relative path becomes absolute: beside the
/// file if something is there, else in the working directory. "" is no path. Returns the keys that it names:
/// "section.key".
std::vector<std::string> read_config(const Sections& sections, const fs::path& path);
/// The same for TOML text, whose paths stay as they are; `origin` stands for the path in messages.
std::vector<std::string> parse_config(const Sections& sections, const std::string& text, const std::string& origin);

/// "section.key=value" taken apart, without blanks around the three.
struct Assignment {
  std::string section, key, value;
};
/// Error if the text is not of this form.
Assignment assignment_of(const std::string& text);

/// Error, if "width=30" lacks its section, with those that have such a key.
void require_section(const Sections& sections, const std::string& assignment);

/// Applies one "section.key=value". The value is TOML; for a string, anything that does not begin with a quotation mark
/// is taken as it stands. A relative path starts at the working directory. Errors as read_config.
void set_config(const Sections& sections, const std::string& assignment);

/// Sets one field from text, checking type, range and choices; `origin` begins the message ("--max-span").
void set_field(const Field& field, const std::string& text, const std::string& origin);

/// The same checks of the values that fields have, for configurations that a program has filled in: Error for the
/// first that is out of range or not among its choices, as "section.key: ...".
void check_values(const Fields& fields, const std::string& section);

/// Gives fields the values of others, which were declared by the same code.
void copy_values(const Fields& from, const Fields& to);

/// A field as an option of the command: max_span becomes --max-span.
std::string flag_of(const std::string& field);

/// The current values as TOML that read_config reads back to the same values, reals to the last bit.
std::string config_to_toml(const Sections& sections);

/// One line per field: name, default (the current value), help, range or choices, unit; lines longer than 120 columns
/// continue below. For `--help` and docs.
std::string config_help(const Sections& sections);

/// The field's value as TOML, e.g. 0.1, "adam", [0.9, 0.05, 0.05].
std::string field_to_toml(const Field& field);

}  // namespace lapse
