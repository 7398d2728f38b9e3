#include "lapse/cli/verbs.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <new>
#include <regex>
#include <set>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/forgetting/registry.h"
#include "lapse/tasks/registry.h"

namespace lapse {
namespace {

std::string flag_of(const Field& field) {
  std::string flag = "--" + field.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

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

/// Declares the evaluation options of every entry of a table; entries may share a flag, and what it means. Methods and
/// tasks share none.
template <class Entry>
void add_options(CLI::App& verb, const std::vector<Entry>& table, const std::string& group) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> flags;  // flag -> meaning -> of which entries
  for (const auto& entry : table)
    for (const auto& field : entry.options()->evaluation_fields())
      flags[flag_of(field)][field.help].push_back(entry.name);
  for (const auto& [flag, meanings] : flags) {
    std::vector<std::string> lines;
    for (const auto& [help, names] : meanings) lines.push_back(fmt::format("{}: {}", fmt::join(names, ", "), help));
    verb.add_option(flag)->description(fmt::format("{}", fmt::join(lines, "\n")))->type_name("VALUE")->group(group);
  }
}

/// The methods that need no training.
std::vector<std::string> baselines() {
  std::vector<std::string> names;
  for (const auto& entry : method_table())
    if (entry.options()->adopts()) names.push_back(entry.name);
  return names;
}

/// The entries of a table that have a flag.
template <class Entry>
std::vector<std::string> that_have(const std::vector<Entry>& table, const std::string& flag) {
  std::vector<std::string> names;
  for (const auto& entry : table)
    for (const auto& field : entry.options()->evaluation_fields())
      if (flag_of(field) == flag) names.push_back(entry.name);
  return names;
}

/// Sets those that were given. `chosen`: the options of what is read with, or null; `told` names it, `kind` what the
/// table holds.
template <class Entry, class Options>
void set_options(const CLI::App& verb, const std::vector<Entry>& table, Options* chosen, const std::string& told,
                 const std::string& kind) {
  std::set<std::string> known;
  for (const auto& field : chosen ? chosen->evaluation_fields() : Fields()) {
    const std::string flag = flag_of(field);
    known.insert(flag);
    const auto given = verb.get_option(flag)->results();
    if (!given.empty()) set_field(field, given.back(), flag);
  }
  for (const auto& entry : table)
    for (const auto& field : entry.options()->evaluation_fields())
      if (const std::string flag = flag_of(field); verb.count(flag) > 0 && known.count(flag) == 0)
        fail(fmt::format("{} is no option of {}; the {} that have it: {}", flag, told, kind,
                         fmt::join(that_have(table, flag), ", ")));
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

void add_evaluation_options(CLI::App& verb) {
  verb.add_option("--method")
      ->description("read the model with another forgetting method, one that needs no training")
      ->type_name(fmt::format("NAME:{{{}}}", fmt::join(baselines(), ",")));
  add_options(verb, method_table(), kMethodOptions);
}

void set_evaluation_options(const CLI::App& verb, const Checkpoint& checkpoint) {
  const auto given = verb.get_option("--method")->results();
  if (!given.empty()) checkpoint.config().read_with(given.back());
  const std::string& name = checkpoint.config().method_name;
  set_options(verb, method_table(), &checkpoint.config().method(),
              given.empty() ? "the run's method, " + name : "--method " + name, "methods");
}

void add_task_options(CLI::App& verb) { add_options(verb, task_table(), "Options of the run's task"); }

void set_task_options(const CLI::App& verb, const Checkpoint& checkpoint) {
  const bool has_task = checkpoint.config().task() != nullptr;
  set_options(verb, task_table(), checkpoint.config().task(),
              has_task ? "the run's task, " + checkpoint.config().task_name : "the run, which reads a text", "tasks");
}

void check_out(const fs::path& path) {
  if (const fs::path folder = path.parent_path(); !folder.empty() && !is_folder(folder))
    fail(fmt::format("--out: there is no folder {}", folder.string()));
  if (is_folder(path)) fail(fmt::format("--out: {} is a folder; name a file", path.string()));
}

void add_precision(CLI::App& verb, std::string& precision) {
  verb.add_option("--precision", precision,
                  "bf16: weights and memory in bfloat16, half the bytes: much faster where they come from memory, and "
                  "numbers that differ in the third digit")
      ->check(one_of({"float32", "bf16"}))
      ->capture_default_str();
}

void add_threads(CLI::App& verb, int64_t& threads) {
  verb.add_option("--threads", threads, "cores to use; default: all")->check(whole_number(1, 4096));
}

std::unique_ptr<Source> source_of(const Checkpoint& checkpoint, const std::string& data, const std::string& split) {
  const TaskOptions* task = checkpoint.config().task();
  if (!task)
    return std::make_unique<TextSource>(checkpoint.config().data, checkpoint.vocabulary(), split,
                                        text_of(checkpoint, data, split));
  if (!data.empty())
    fail("the run's task, " + checkpoint.config().task_name + ", generates what it reads; leave out --data");
  auto source = task->open();
  if (source->vocabulary().to_json() != checkpoint.vocabulary().to_json())
    fail(checkpoint.path().string() + ": its vocabulary is not that of the task " + checkpoint.config().task_name);
  return source;
}

Tokens text_of(const Checkpoint& checkpoint, const std::string& data, const std::string& split) {
  if (checkpoint.config().task()) fail("the run has the task " + checkpoint.config().task_name + " and reads no text");
  const DataConfig& config = checkpoint.config().data;
  if (!data.empty()) return load_tokens(data, split, config, checkpoint.vocabulary());
  if (!config.path.empty()) return load_tokens(config.path, split, config, checkpoint.vocabulary());
  const std::map<std::string, std::string> files = {
      {"train", config.train_path}, {"valid", config.valid_path}, {"test", config.test_path}};
  const auto file = files.find(split);
  if (file == files.end() || file->second.empty())
    fail("the run has no file for split '" + split + "'; give one: --data FILE --split all");
  return load_tokens(file->second, "all", config, checkpoint.vocabulary());
}

}  // namespace lapse
