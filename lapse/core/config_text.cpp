#include "lapse/core/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lapse {
namespace {

constexpr size_t kColumns = 120;

std::string bound_text(const Field& field, double bound) {
  const bool whole = std::holds_alternative<int64_t*>(field.value) && std::isfinite(bound);
  return whole ? fmt::format("{:.0f}", bound) : fmt::format("{}", bound);
}

// "learning rate after warm-up (0 ... 10, per update)"
std::string explained(const Field& field) {
  std::vector<std::string> limits;
  if (!field.choices.empty()) limits.push_back(fmt::format("one of {}", fmt::join(field.choices, ", ")));
  if (const std::string range = range_text(field); !range.empty()) limits.push_back(range);
  if (!field.unit_name.empty()) limits.push_back(field.unit_name);
  return limits.empty() ? field.help : fmt::format("{} ({})", field.help, fmt::join(limits, ", "));
}

}  // namespace

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    size_t end = text.rfind(' ', width);
    if (end == text.npos) end = std::min(text.find(' ', width), text.size());  // one long word
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!text.empty()) lines.emplace_back(text);
  return lines;
}

std::string to_toml(int64_t value) { return fmt::format("{}", value); }
std::string to_toml(bool value) { return value ? "true" : "false"; }

std::string to_toml(double value) {
  if (std::isnan(value)) return "nan";
  std::string digits = fmt::format("{}", value);
  const bool real = digits.find_first_of(".einf") != digits.npos;  // else it would read back as an integer
  return real ? digits : digits + ".0";
}

std::string to_toml(const std::string& value) {
  std::string text = "\"";
  for (unsigned char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c < ' ' || c == 0x7f) {
      text += fmt::format("\\u{:04X}", c);
    } else {
      text += static_cast<char>(c);
    }
  }
  return text + '"';
}

template <class T>
std::string list_to_toml(const std::vector<T>& values) {
  std::string text;
  for (const T value : values) text += (text.empty() ? "" : ", ") + to_toml(value);
  return '[' + text + ']';
}

std::string to_toml(const std::vector<double>& values) { return list_to_toml(values); }
std::string to_toml(const std::vector<int64_t>& values) { return list_to_toml(values); }

std::string range_text(const Field& field) {
  const bool from = field.low != std::numeric_limits<double>::lowest();
  const bool to = field.high != std::numeric_limits<double>::max();
  if (from && to) return bound_text(field, field.low) + " ... " + bound_text(field, field.high);
  if (from) return "at least " + bound_text(field, field.low);
  return to ? "at most " + bound_text(field, field.high) : "";
}

std::string field_to_toml(const Field& field) {
  return std::visit([](const auto* value) { return to_toml(*value); }, field.value);
}

std::string config_to_toml(const Sections& sections) {
  std::string text;
  for (const Section& section : sections) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Field& field : section.fields) text += fmt::format("{} = {}\n", field.name, field_to_toml(field));
  }
  return text;
}

std::string config_help(const Sections& sections) {
  size_t name_width = 0, value_width = 0;
  for (const Section& section : sections) {
    for (const Field& field : section.fields) {
      name_width = std::max(name_width, field.name.size());
      value_width = std::max(value_width, std::min<size_t>(field_to_toml(field).size(), 20));
    }
  }
  const size_t indent = 2 + name_width + 3 + value_width + 2;
  std::string text;
  for (const Section& section : sections) {
    text += fmt::format("{}[{}]  {}\n", text.empty() ? "" : "\n", section.name, section.help);
    for (const Field& field : section.fields) {
      const std::string value = field_to_toml(field);
      text += fmt::format("  {:{}} = {:{}}", field.name, name_width, value, value_width);
      std::string gap = value.size() > value_width ? "\n" + std::string(indent, ' ') : "  ";
      for (const std::string& line : wrapped(explained(field), kColumns - std::min(indent, kColumns / 2))) {
        text += gap + line;
        gap = "\n" + std::string(indent, ' ');
      }
      text += '\n';
    }
  }
  return text;
}

}  // namespace lapse
