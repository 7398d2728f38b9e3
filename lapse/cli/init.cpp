// `lapse init`: configurations to begin with. Each is a file of the folder examples/, carried within the program.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/config_text.h"
#include "lapse/core/error.h"
#include "lapse/core/file.h"

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
  std::cout << "\nlapse init NAME -o my.toml, then lapse train my.toml --out runs/my\n";
}

const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& preset : presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  fail(fmt::format("there is no preset '{}'{}; `lapse init` lists them", name, did_you_mean(name, names)));
}

/// The preset with another text. The path becomes absolute, so that the file may lie anywhere.
std::string with_data(const Preset& preset, const std::string& data) {
  const std::string key = "\npath = \"";
  const size_t begin = preset.text.find(key);
  if (begin == std::string::npos)
    fail(fmt::format("the preset '{}' has no data.path to fill in; leave out --data", preset.name));
  const size_t value = begin + key.size() - 1, end = preset.text.find('"', value + 1) + 1;
  return preset.text.substr(0, value) + to_toml(fs::absolute(data).string()) + preset.text.substr(end);
}

int run(const Arguments& arguments) {
  if (arguments.name.empty()) {
    if (!arguments.out.empty() || !arguments.data.empty()) fail("which preset? `lapse init` alone lists them");
    list();
    return 0;
  }
  const Preset& preset = find_preset(arguments.name);
  const std::string text = arguments.data.empty() ? preset.text : with_data(preset, arguments.data);
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
  verb.add_option("name", arguments->name, "the preset to print");
  verb.add_option("-o,--out", arguments->out, "write it to this file, which must be new; default: standard output")
      .type_name("FILE");
  verb.add_option("--data", arguments->data, "the text to train on: fills in data.path").type_name("FILE");
  verb.footer("Example: lapse init demo --data my.txt -o my.toml && lapse train my.toml --out runs/my");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = [=] { return run(*arguments); };
  });
}

}  // namespace lapse
