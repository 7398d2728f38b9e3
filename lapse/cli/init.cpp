// `lapse init`: configurations to begin with. Each is a file of the folder examples/, carried within the program.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <sstream>
#include <utility>

#include "lapse/cli/verbs.h"
#include "lapse/core/config_text.h"
#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/data/utf8.h"
#include "lapse/train/config.h"

namespace lapse {
namespace {

struct Preset {
  std::string name, text;

  /// Its first line, a comment.
  std::string title() const { return text.substr(2, text.find('\n') - 2); }
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
#include "embedded/presets.inc"
  };
  return all;
}

struct Arguments {
  std::string name, out, data;
  std::vector<std::string> set;
};

/// Small ones first, then those of the papers.
void list() {
  size_t width = 0;
  for (const auto& preset : presets()) width = std::max(width, preset.name.size());
  for (const bool paper : {false, true}) {
    std::cout << (paper ? "\nThe papers' own, for large machines:\n" : "Small ones, minutes on two cores:\n");
    for (const auto& preset : presets())
      if (preset.name.starts_with("paper-") == paper)
        std::cout << fmt::format("  {:{}}  {}\n", preset.name, width, preset.title());
  }
  std::cout << "\nlapse init NAME -o my.toml, then lapse train my.toml --data TEXT --out runs/my\n"
               "(a task or an environment needs no --data)\n";
}

const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& preset : presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  fail(fmt::format("there is no preset '{}'{}; `lapse init` lists them", name, did_you_mean(name, names)));
}

/// Completion offers the names; a wrong one is find_preset's error.
Check preset_name() {
  std::vector<std::string> names;
  for (const auto& preset : presets()) names.push_back(preset.name);
  Check check = one_of(names);
  check.wrong = [](const std::string&) { return std::string(); };
  return check;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

/// The lines of a section, without its heading: [first, last). If it is not there, it becomes the last one.
std::pair<size_t, size_t> section_of(std::vector<std::string>& lines, const std::string& name) {
  auto begin = std::ranges::find_if(lines, [&](const auto& line) { return line.starts_with("[" + name + "]"); });
  if (begin == lines.end()) lines.insert(lines.end(), {"", "[" + name + "]"}), begin = lines.end() - 1;
  const auto end = std::find_if(begin + 1, lines.end(), [](const auto& line) { return line.starts_with('['); });
  return {begin + 1 - lines.begin(), end - lines.begin()};
}

/// The preset with this text in place of its own one or three. The path becomes absolute, so that the file may lie
/// anywhere.
std::string with_data(const Preset& preset, const std::string& data) {
  std::vector<std::string> lines = lines_of(preset.text);
  const auto [first, last] = section_of(lines, "data");
  const auto names_text = [](const std::string& line) {
    return std::ranges::any_of(std::array{"path =", "train =", "valid =", "test ="},
                               [&](const char* key) { return line.starts_with(key); });
  };
  const auto begin = lines.begin() + first, end = lines.begin() + last, found = std::find_if(begin, end, names_text);
  if (found == end) fail(fmt::format("the preset '{}' reads no text; leave out --data", preset.name));
  require_utf8(data, "--data: the name");
  *found = "path = " + to_toml(fs::absolute(data).string());
  lines.erase(std::remove_if(found + 1, end, names_text), end);
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

/// Where a line's value ends: before its comment, and the blanks before that.
size_t end_of_value(const std::string& line) {
  char quote = 0;
  size_t end = line.size();
  for (size_t i = 0; i < line.size() && end == line.size(); ++i) {
    if (quote != 0)
      quote = line[i] == quote ? 0 : quote;
    else if (line[i] == '"' || line[i] == '\'')
      quote = line[i];
    else if (line[i] == '#')
      end = i;
  }
  while (end > 0 && line[end - 1] == ' ') --end;
  return end;
}

/// The text with `key = value` in its section: in place of the value that is there, else as the section's last line.
std::string with_value(const std::string& text, const std::string& section, const std::string& key,
                       const std::string& value) {
  std::vector<std::string> lines = lines_of(text);
  const auto [first, last] = section_of(lines, section);
  const auto end = lines.begin() + last;
  const auto found =
      std::find_if(lines.begin() + first, end, [&](const auto& line) { return line.starts_with(key + " ="); });
  const std::string assigned = key + " = " + value;
  if (found != end) {
    found->replace(0, end_of_value(*found), assigned);
  } else {
    auto place = end;
    while ((place - 1)->empty()) --place;
    lines.insert(place, assigned);
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

/// The preset with these values, "train.batch=8", each checked on its own; whether they go together `lapse train` says.
std::string with_values(std::string text, const std::vector<std::string>& set) {
  Config config;
  const Sections sections = config.sections();
  for (const auto& assignment : set) {
    set_config(sections, assignment);
    const auto [name, key, value] = assignment_of(assignment);
    const auto section = std::ranges::find(sections, name, &Section::name);
    const auto field = std::ranges::find(section->fields, key, &Field::name);
    text = with_value(text, section->name, field->name, field_to_toml(*field));
  }
  return text;
}

int run(const Command& verb, const Arguments& arguments) {
  refuse_empty(verb, {{"--out", arguments.out}, {"--data", arguments.data}});
  if (arguments.name.empty()) {
    if (!arguments.out.empty() || !arguments.data.empty() || !arguments.set.empty())
      fail("which preset? `lapse init` alone lists them");
    list();
    return 0;
  }
  const Preset& preset = find_preset(arguments.name);
  const std::string text =
      with_values(arguments.data.empty() ? preset.text : with_data(preset, arguments.data), arguments.set);
  if (arguments.out.empty()) {
    std::cout << text;
    return 0;
  }
  check_out(arguments.out);
  if (is_there(arguments.out)) fail(fmt::format("-o: {} exists already; give another name", arguments.out));
  write_file(arguments.out, text);
  return 0;
}

}  // namespace

void add_init(const Command& program, Action& action) {
  const Command verb = program.add_verb("init", "Write a configuration to begin with; without a name, list them");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("name", arguments->name, "the preset to print").check(preset_name());
  verb.add_option("-o,--out", arguments->out, "write it to this file, which must be new; default: standard output")
      .type_name("FILE");
  verb.add_option("--data", arguments->data, "the text to train on, as data.path").type_name("FILE");
  verb.add_option("--set", arguments->set, "a value over the preset's, written into it; may be repeated")
      .type_name("SECTION.KEY=VALUE")
      .repeats();
  verb.footer("Example: lapse init demo --data my.txt -o my.toml && lapse train my.toml --out runs/my");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = [=] { return run(verb, *arguments); };
  });
}

}  // namespace lapse
