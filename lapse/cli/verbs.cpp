#include "lapse/cli/verbs.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <new>
#include <regex>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/forgetting/registry.h"
#include "lapse/tasks/registry.h"

namespace lapse {
namespace {

/// "0 ... 100".
template <class T>
std::string bounds(T low, T high) {
  return fmt::format("{} ... {}", low, high);
}

/// For the help: without an upper bound that only keeps numbers from overflowing.
template <class T>
std::string shown_bounds(T low, T high) {
  constexpr T kMany = 1'000'000'000;
  return high < kMany ? bounds(low, high) : fmt::format("at least {}", low);
}

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

/// Declares the reading options of every entry of a table, which go to `values`; entries may share a flag, and what it
/// means. Methods and tasks share none.
template <class Entry>
void add_options(CLI::App& verb, const std::vector<Entry>& table, const std::string& group,
                 ReadingOptions::Values& values) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> all;  // field -> meaning -> of which entries
  for (const auto& entry : table)
    for (const auto& field : entry.options()->reading_fields()) all[field.name][field.help].push_back(entry.name);
  for (const auto& [field, meanings] : all) {
    std::vector<std::string> lines;
    for (const auto& [help, names] : meanings) lines.push_back(fmt::format("{}: {}", fmt::join(names, ", "), help));
    const auto set = [&values, field = field](const std::string& value) { values[field] = value; };
    verb.add_option_function<std::string>(flag_of(field), set, fmt::format("{}", fmt::join(lines, "\n")))
        ->type_name("VALUE")
        ->group(group);
  }
}

/// The methods that need no training.
std::vector<std::string> baselines() {
  std::vector<std::string> names;
  for (const auto& entry : method_table())
    if (entry.options()->adopts()) names.push_back(entry.name);
  return names;
}

}  // namespace

// libtorch's failed allocation is a c10::Error among others, "[enforce fail at alloc_cpu.cpp:1] ... you tried to
// allocate 123 bytes ...". Where no memory is left for that text either, it breaks off.
Action within_memory(std::string advice, Action action) {
  return [advice = std::move(advice), action = std::move(action)] {
    try {
      return action();
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      std::smatch size;
      if (std::regex_search(message, size, std::regex("tried to allocate (\\d+) bytes")))
        fail(fmt::format("out of memory: cannot allocate {} ({} are free); {}", byte_size(std::stod(size[1])),
                         byte_size(static_cast<double>(available_memory())), advice));
      if (!std::string_view("[enforce fail at alloc_cpu").starts_with(message)) throw;
      fail("out of memory; " + advice);
    } catch (const std::bad_alloc&) {
      fail("out of memory; " + advice);
    }
  };
}

void refuse_extras(const CLI::App& verb) {
  const auto extras = verb.remaining();
  if (!extras.empty()) refuse(verb, extras[0].substr(0, extras[0].find('=')));
  for (const auto* inner : verb.get_subcommands()) refuse_extras(*inner);
}

// CLI11 would read 010 as an octal number: only one spelling of each number is accepted.
CLI::Validator whole_number(int64_t low, int64_t high) {
  const std::string range = bounds(low, high);
  const auto check = [=](const std::string& text) -> std::string {
    const char* end = text.data() + text.size();
    int64_t value = 0;
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::invalid_argument || stopped != end ||
        (text != fmt::format("{}", value) && error == std::errc()))
      return fmt::format("'{}' is not a whole number; give {}", text, range);
    if (error != std::errc() || value < low || value > high)
      return fmt::format("{} is out of range; give {}", text, range);
    return {};
  };
  return CLI::Validator(check, shown_bounds(low, high));
}

CLI::Validator number(double low, double high) {
  const std::string range = bounds(low, high);
  const auto check = [=](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || std::isspace(static_cast<unsigned char>(text[0])) || std::isnan(value))
      return fmt::format("'{}' is not a number; give {}", text, range);
    return value >= low && value <= high ? "" : fmt::format("{} is out of range; give {}", text, range);
  };
  return CLI::Validator(check, shown_bounds(low, high));
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  const auto check = [=](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return {};
    return fmt::format("there is no '{}'{}; give one of {}", text, did_you_mean(text, names), fmt::join(names, ", "));
  };
  return CLI::Validator(check, fmt::format("{{{}}}", fmt::join(names, ",")));
}

void add_method_options(CLI::App& verb, ReadingOptions& reading) {
  const auto set = [&reading](const std::string& name) { reading.method = name; };
  verb.add_option_function<std::string>("--method", set,
                                        "read the model with another forgetting method, one that needs no training")
      ->type_name(fmt::format("NAME:{{{}}}", fmt::join(baselines(), ",")));
  add_options(verb, method_table(), "Options of the forgetting method, the run's or that of --method",
              reading.of_method);
}

void add_task_options(CLI::App& verb, ReadingOptions& reading) {
  add_options(verb, task_table(), "Options of the run's task", reading.of_task);
}

Config generating(const std::string& name, const std::vector<std::string>& set) {
  Config config;
  config.task_name = name;
  return generating_otherwise(config, set);
}

Config generating_otherwise(Config config, const std::vector<std::string>& set) {
  Sections sections = config.sections();
  std::erase_if(sections, [&](const Section& section) { return section.name != config.task_name; });
  for (const auto& assignment : set) set_config(sections, assignment);
  config.environment() ? config.environment()->check() : config.task()->check();
  return config;
}

void check_out(const fs::path& path, const std::string& flag) {
  if (const fs::path folder = path.parent_path(); !folder.empty() && !is_folder(folder))
    fail(fmt::format("{}: there is no folder {}", flag, folder.string()));
  if (is_folder(path)) fail(fmt::format("{}: {} is a folder; name a file", flag, path.string()));
}

void add_min_fill(CLI::App& verb, double& share) {
  verb.add_option("--min-fill", share,
                  "of runs that read documents: only those that fill at least this share of the window, as 0.9")
      ->check(number(0.0, 1.0));
}

void add_precision(CLI::App& verb, std::string& precision) {
  verb.add_option("--precision", precision,
                  "bf16: weights and memory in bfloat16, half the bytes: much faster where they come from memory, and "
                  "numbers that differ in the third digit")
      ->check(one_of({"float32", "bf16"}))
      ->capture_default_str();
}

void add_device(CLI::App& verb, std::string& device) {
  verb.add_option("--device", device, "what to compute on: cpu, or where libtorch has it cuda or cuda:N")
      ->type_name("NAME")
      ->capture_default_str();
}

void add_threads(CLI::App& verb, int64_t& threads) {
  verb.add_option("--threads", threads, "cores to use; default: all")->check(whole_number(1, 4096));
}

}  // namespace lapse
