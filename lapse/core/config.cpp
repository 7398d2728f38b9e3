#include "lapse/core/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

// The parser asserts that a key follows "[" before it checks, and would end the program where it should report.
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

#include "lapse/core/config_text.h"
#include "lapse/core/error.h"
#include "lapse/core/toml_bounds.h"

namespace lapse {
namespace {

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;

void check_range(const Field& field, double value, const std::string& shown, const std::string& origin) {
  if (value >= field.low && value <= field.high) return;  // false for NaN
  const std::string range = range_text(field);
  fail(fmt::format("{}: {} is out of range; give {}{}{}", origin, shown, range.empty() ? "a finite number" : range,
                   field.unit_name.empty() ? "" : " ", field.unit_name));
}

void check_choice(const Field& field, const std::string& value, const std::string& origin) {
  if (field.choices.empty() || std::ranges::find(field.choices, value) != field.choices.end()) return;
  fail(fmt::format("{}: there is no '{}'{}; give one of {}", origin, value, did_you_mean(value, field.choices),
                   fmt::join(field.choices, ", ")));
}

// --- assignment ------------------------------------------------------------------------------------------------------

std::string expected_value(const Field& field) {
  return std::visit(
      Match{[](int64_t*) { return "an integer, such as 12"; }, [](double*) { return "a number, such as 0.5 or 1e-3"; },
            [](bool*) { return "true or false"; }, [](std::string*) { return "a string, such as \"text\""; },
            [](std::vector<double>*) { return "a list of numbers, such as [0.5, 1e-3]"; },
            [](std::vector<int64_t>*) { return "a list of integers, such as [16, 8]"; }},
      field.value);
}

std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  if (auto* text = node.as_string()) return to_toml(text->get());
  if (auto* real = node.as_floating_point()) return to_toml(real->get());
  if (auto* whole = node.as_integer()) return to_toml(whole->get());
  if (auto* truth = node.as_boolean()) return to_toml(truth->get());
  return "a date or time";
}

[[noreturn]] void wrong_type(const Field& field, const std::string& given, const std::string& origin) {
  fail(fmt::format("{}: expected {}; got {}", origin, expected_value(field), given));
}

int64_t whole_number(const Field& field, const toml::node& node, const std::string& given, const std::string& origin) {
  const auto real = node.is_floating_point() ? node.value_exact<double>() : std::nullopt;
  const bool is_whole = real && std::trunc(*real) == *real && std::abs(*real) < 1e15;
  if (is_whole) fail(fmt::format("{}: expected an integer; write {:.0f} instead of {}", origin, *real, given));
  if (!node.is_integer()) wrong_type(field, given, origin);
  const int64_t value = *node.value<int64_t>();
  check_range(field, static_cast<double>(value), given, origin);
  return value;
}

double real_number(const Field& field, const toml::node& node, const std::string& given, const std::string& origin) {
  if (!node.is_number()) wrong_type(field, given, origin);
  const double value = *node.value<double>();
  check_range(field, value, shown(node), origin);
  return value;
}

template <class T>
std::vector<T> list_of(T (&item_of)(const Field&, const toml::node&, const std::string&, const std::string&),
                       const Field& field, const toml::node& node, const std::string& given,
                       const std::string& origin) {
  if (!node.is_array()) wrong_type(field, given, origin);
  std::vector<T> list;
  for (const toml::node& item : *node.as_array())
    list.push_back(item_of(field, item, "a list with " + shown(item), origin));
  return list;
}

// Everything that comes from outside passes here.
void assign(const Field& field, const toml::node& node, const std::string& origin) {
  const std::string given = shown(node);
  std::visit(Match{[&](int64_t* value) { *value = whole_number(field, node, given, origin); },
                   [&](double* value) { *value = real_number(field, node, given, origin); },
                   [&](bool* value) {
                     if (!node.is_boolean()) wrong_type(field, given, origin);
                     *value = *node.value<bool>();
                   },
                   [&](std::string* value) {
                     if (!node.is_string()) wrong_type(field, given, origin);
                     check_choice(field, *node.value<std::string>(), origin);
                     *value = *node.value<std::string>();
                   },
                   [&](std::vector<double>* value) { *value = list_of(real_number, field, node, given, origin); },
                   [&](std::vector<int64_t>* value) { *value = list_of(whole_number, field, node, given, origin); }},
             field.value);
}

// At a letter beyond ASCII that is neither in a string nor in a comment the behaviour of toml++ 3.3 is undefined. Such
// a letter is an error in any case, and a copy that has '?' in the place of those letters finds it.
toml::table parse_toml(const std::string& text) {
  const std::string_view mark = "\xef\xbb\xbf";
  std::string ascii = text.substr(text.starts_with(mark) ? mark.size() : 0);
  std::ranges::replace_if(
      ascii, [](unsigned char c) { return c > 127; }, '?');
  if (ascii != text) std::ignore = toml::parse(ascii);
  return toml::parse(text);
}

// The value that the text spells; none where it is not one TOML value.
std::optional<toml::table> parse_value(const std::string& text) {
  try {
    toml::table table = parse_toml("value = " + text);
    if (table.size() == 1) return table;  // a line break could smuggle in more
  } catch (const toml::parse_error&) {
  }
  return std::nullopt;
}

// --- finding the field -----------------------------------------------------------------------------------------------

template <class Named>
const Named* find(const std::vector<Named>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Named::name);
  return found == all.end() ? nullptr : &*found;
}

template <class Named>
std::vector<std::string> names(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

// Where a name is not among `all`: the nearest one, else all of them.
template <class Named>
std::string advice(const std::string& name, const std::vector<Named>& all) {
  const std::string nearest = did_you_mean(name, names(all));
  return nearest.empty() ? fmt::format("; known are {}", fmt::join(names(all), ", ")) : nearest;
}

/// The sections that have this key: "[a] or [b]"; empty: none.
std::string sections_with(const Sections& sections, const std::string& key) {
  std::vector<std::string> having;
  for (const Section& section : sections)
    if (find(section.fields, key)) having.push_back("[" + section.name + "]");
  constexpr size_t kMost = 3;
  if (having.size() > kMost) having.resize(kMost), having.push_back("others");
  return fmt::format("{}", fmt::join(having, " or "));
}

const Section& find_section(const Sections& sections, const std::string& name, const std::string& where) {
  if (const Section* section = find(sections, name)) return *section;
  fail(fmt::format("{}unknown section [{}]{}", where, name, advice(name, sections)));
}

const Field& find_field(const Sections& sections, const Section& section, const std::string& key,
                        const std::string& where) {
  if (const Field* field = find(section.fields, key)) return *field;
  std::string mend = advice(key, section.fields);
  if (const auto others = sections_with(sections, key); !others.empty()) mend = "; it belongs to " + others;
  if (find(sections, key)) mend = fmt::format("; the section [{}] stands by itself, not within another", key);
  fail(fmt::format("{}unknown key '{}' in [{}]{}", where, key, section.name, mend));
}

// A value above the first section header.
[[noreturn]] void fail_outside(const Sections& sections, const std::string& key, const std::string& where) {
  if (find(sections, key))
    fail(fmt::format("{}'{}' is a section; write its keys below one header [{}]", where, key, key));
  if (const auto having = sections_with(sections, key); !having.empty())
    fail(fmt::format("{}'{}' stands outside its section; write it below {}", where, key, having));
  fail(fmt::format("{}'{}' stands outside a section; sections are {}", where, key, fmt::join(names(sections), ", ")));
}

// Beside a configuration file, or in the working directory where nothing is there.
void make_absolute(const Field& field, const fs::path& folder) {
  std::string& path = *std::get<std::string*>(field.value);
  if (path.empty() || fs::path(path).is_absolute()) return;
  std::error_code error;
  const fs::path beside = fs::absolute(folder / path, error);
  if (!error && fs::exists(beside, error)) {
    path = beside.string();
  } else if (const fs::path here = fs::absolute(path, error); !error) {
    path = here.string();
  }
}

// toml++ orders by name; people read, and mend, from the top.
std::vector<std::pair<std::string, const toml::node*>> in_file_order(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> items;
  for (const auto& [key, node] : table) items.emplace_back(key.str(), &node);
  std::ranges::stable_sort(items, {}, [](const auto& item) { return item.second->source().begin.line; });
  return items;
}

}  // namespace

void require_section(const Sections& sections, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == assignment.npos || assignment.find('.') < equals) return;
  const std::string key = assignment.substr(0, equals);
  if (const auto having = sections_with(sections, key); !having.empty())
    fail(fmt::format("'{}' lacks its section: '{}' belongs to {}", assignment, key, having));
}

Field Field::in(double lowest, double highest) && {
  low = lowest, high = highest;
  return std::move(*this);
}

Field Field::unit(std::string name) && {
  unit_name = std::move(name);
  return std::move(*this);
}

Field Field::one_of(std::vector<std::string> names) && {
  choices = std::move(names);
  return std::move(*this);
}

Field Field::path() && {
  is_path = true;
  return std::move(*this);
}
Field Field::used_if(std::function<bool()> used) && {
  is_used = std::move(used);
  return std::move(*this);
}

std::vector<std::string> read_config(const Sections& sections, const fs::path& path) {
  auto given = parse_config(sections, read_file(path, kSmallFile), path.string());
  for (const Section& section : sections)
    for (const Field& field : section.fields)
      if (field.is_path) make_absolute(field, path.parent_path());
  return given;
}

std::vector<std::string> parse_config(const Sections& sections, const std::string& text, const std::string& origin) {
  const auto where = [&](const toml::node& node) { return fmt::format("{}:{}: ", origin, node.source().begin.line); };
  const auto refuse = [&](int64_t line, std::string_view why) {
    const bool has_sections = text.starts_with('[') || text.find("\n[") != text.npos;
    fail(fmt::format("{}:{}: {}{}", origin, line, why,
                     has_sections ? ""
                                  : "; a configuration has sections, such as [train], and this file has none "
                                    "(`lapse init` prints one to begin with)"));
  };
  if (const auto fault = toml_fault(text)) refuse(fault->line, fault->what);
  toml::table file;
  try {
    file = parse_toml(text);
  } catch (const toml::parse_error& error) {
    refuse(error.source().begin.line, error.description());
  }
  std::vector<std::string> given;
  for (const auto& [name, node] : in_file_order(file)) {
    if (!node->is_table()) fail_outside(sections, name, where(*node));
    const Section& section = find_section(sections, name, where(*node));
    for (const auto& [key, value] : in_file_order(*node->as_table())) {
      const Field& field = find_field(sections, section, key, where(*value));
      assign(field, *value, fmt::format("{}{}.{}", where(*value), name, key));
      given.push_back(fmt::format("{}.{}", name, key));
    }
  }
  return given;
}

Assignment assignment_of(const std::string& text) {
  const auto trim = [](std::string part) {
    const char* blanks = " \t\r\n";
    part.erase(0, std::min(part.find_first_not_of(blanks), part.size()));
    return part.substr(0, part.find_last_not_of(blanks) + 1);
  };
  const size_t equals = text.find('='), dot = text.find('.');
  if (equals == text.npos || dot > equals) fail(fmt::format("'{}' is not of the form section.key=value", text));
  return {trim(text.substr(0, dot)), trim(text.substr(dot + 1, equals - dot - 1)), trim(text.substr(equals + 1))};
}

void set_config(const Sections& sections, const std::string& assignment) {
  require_section(sections, assignment);
  const auto [name, key, value] = assignment_of(assignment);
  const std::string where = fmt::format("'{}': ", assignment);
  const Section& section = find_section(sections, name, where);
  const Field& field = find_field(sections, section, key, where);
  set_field(field, value, fmt::format("{}.{}", section.name, key));
  if (field.is_path) make_absolute(field, "");
}

void check_values(const Fields& fields, const std::string& section) {
  for (const Field& field : fields) {
    const std::string origin = section + '.' + field.name;
    const auto number = [&](const auto& value) {
      check_range(field, static_cast<double>(value), to_toml(value), origin);
    };
    std::visit(Match{[&](const int64_t* value) { number(*value); }, [&](const double* value) { number(*value); },
                     [](const bool*) {}, [&](const std::string* value) { check_choice(field, *value, origin); },
                     [&](const std::vector<double>* values) { std::ranges::for_each(*values, number); },
                     [&](const std::vector<int64_t>* values) { std::ranges::for_each(*values, number); }},
               field.value);
  }
}

void copy_values(const Fields& from, const Fields& to) {
  for (size_t i = 0; i < to.size(); ++i)
    std::visit([&](auto* value) { *value = *std::get<decltype(value)>(from.at(i).value); }, to[i].value);
}

std::string flag_of(const std::string& field) {
  std::string flag = "--" + field;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

void set_field(const Field& field, const std::string& text, const std::string& origin) {
  const bool is_string = std::holds_alternative<std::string*>(field.value);
  const bool quoted = text.starts_with('"') || text.starts_with('\'');
  const std::string spelled = is_string && !quoted ? to_toml(text) : text;
  if (const auto fault = toml_fault(spelled)) fail(fmt::format("{}: {}", origin, fault->what));
  const auto parsed = parse_value(spelled);
  if (parsed) return assign(field, *parsed->get("value"), origin);
  if (is_string) fail(fmt::format("{}: {} is not a finished string of UTF-8", origin, text));
  wrong_type(field, fmt::format("'{}'", text), origin);
}

}  // namespace lapse
