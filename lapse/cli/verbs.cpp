#include "lapse/cli/verbs.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <regex>
#include <stdexcept>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/forgetting/registry.h"
#include "lapse/tasks/registry.h"
#include "lapse/train/run_folder.h"

namespace lapse {
namespace {

/// Declares the reading options of every entry of a table, which go to `values`; entries may share a flag, and what it
/// means. Methods and tasks share none.
template <class Entry>
void add_options(const Command& verb, const std::vector<Entry>& table, const std::string& group,
                 ReadingOptions::Values& values) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> all;  // field -> meaning -> of which entries
  for (const auto& entry : table)
    for (const auto& field : entry.options()->reading_fields()) all[field.name][field.help].push_back(entry.name);
  for (const auto& [field, meanings] : all) {
    std::vector<std::string> lines;
    for (const auto& [help, names] : meanings) lines.push_back(fmt::format("{}: {}", fmt::join(names, ", "), help));
    if (verb.has(flag_of(field)))
      throw std::logic_error(fmt::format("{} of {}, an option of reading, is a flag of the verb already; rename it",
                                         flag_of(field), meanings.begin()->second.front()));
    const auto set = [&values, field = field](const std::string& value) { values[field] = value; };
    verb.add_setter(flag_of(field), set, fmt::format("{}", fmt::join(lines, "\n"))).type_name("VALUE").group(group);
  }
}

/// The methods that need no training. Others pass too: the reader tells whether the run has them.
Check method_to_read_with() {
  std::vector<std::string> baselines, all;
  for (const auto* entry : untrained_methods()) baselines.push_back(entry->name);
  for (const auto& entry : method_table()) all.push_back(entry.name);
  Check check = one_of(baselines);
  check.wrong = [wrong = check.wrong, all](const std::string& name) {
    return std::ranges::find(all, name) == all.end() ? wrong(name) : "";
  };
  return check;
}

}  // namespace

// libtorch's failed allocation is a c10::Error among others, "[enforce fail at alloc_cpu.cpp:1] ... you tried to
// allocate 123 bytes ...". Where no memory is left for that text either, it breaks off.
Action within_memory(std::string advice, Action action) {
  return [advice = std::move(advice), action = std::move(action)] {
    try {
      return action();
    } catch (const c10::OutOfMemoryError& error) {  // a GPU's: "CUDA out of memory. Tried to allocate 2.00 GiB. ..."
      const std::string message = error.what_without_backtrace();
      std::smatch size;
      const bool said = std::regex_search(message, size, std::regex("Tried to allocate ([0-9.]+ \\w+)"));
      fail(fmt::format("out of memory on the device{}; {}", said ? ": cannot allocate " + size[1].str() : "", advice));
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

void add_method_options(const Command& verb, ReadingOptions& reading) {
  const auto set = [&reading](const std::string& name) { reading.method = name; };
  verb.add_setter("--method", set, "read the model with another forgetting method, one that needs no training")
      .type_name("NAME")
      .check(method_to_read_with());
  add_options(verb, method_table(), "Options of the forgetting method, the run's or that of --method",
              reading.of_method);
}

void add_task_options(const Command& verb, ReadingOptions& reading) {
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
  for (const auto& assignment : set) {
    require_section(sections, assignment);
    if (const auto given = assignment_of(assignment); given.section != config.task_name)
      fail(fmt::format("'{}': [{}] has no effect here; give values of [{}]", assignment, given.section,
                       config.task_name));
    set_config(sections, assignment);
  }
  config.environment() ? config.environment()->check() : config.task()->check();
  return config;
}

void check_out(const fs::path& path, const std::string& flag) {
  if (path.empty()) fail(flag + " is empty; name a file");
  if (path == "-") fail(flag + " -: name a file; it is not written to standard output");
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!is_folder(folder)) fail(fmt::format("{}: there is no folder {}", flag, folder.string()));
  if (is_folder(path)) fail(fmt::format("{}: {} is a folder; name a file", flag, path.string()));
  std::error_code unknown;
  if (fs::is_other(fs::status(path, unknown))) return;  // a device or a pipe: written to as it is
  if (::access(folder.c_str(), W_OK) != 0)              // now rather than when the work is done
    fail(fmt::format("{}: cannot write to the folder {}: {}", flag, folder.string(), std::strerror(errno)));
}

void use_text(DataConfig& data, const std::string& file) {
  if (file.empty()) return;
  data.path = fs::absolute(file).string();
  data.train_path = data.valid_path = data.test_path = "";
}

void check_apart(const fs::path& path, const std::string& flag, std::vector<std::string> read, const DataConfig& run) {
  read.insert(read.end(), {run.path, run.train_path, run.valid_path, run.test_path, run.tokenizer});
  std::error_code ignored;  // of files that are not there
  for (const auto& file : read)
    if (!file.empty() && fs::equivalent(path, file, ignored))
      fail(fmt::format("{}: {} would be lost: it is read, or is of a run; give another name", flag, path.string()));
}

void check_of_no_run(const fs::path& path, const std::string& flag) {
  fs::path folder = fs::absolute(path).parent_path();
  if (folder == checkpoints_folder(folder.parent_path())) folder = folder.parent_path();
  if (is_file(config_path(folder))) check_apart(path, flag, files_of_runs({folder.string()}));
}

std::vector<std::string> files_of_runs(const std::vector<std::string>& runs) {
  std::vector<std::string> files;
  std::error_code ignored;  // of runs that are not there, which the reader tells better
  for (const auto& run : runs) {
    if (run.empty()) continue;
    const fs::path folder = run_folder(run);
    auto all = files_beside_checkpoints(folder);
    all.emplace_back(run);
    for (const auto& file : all)
      if (is_file(file)) files.push_back(file.string());
    for (const auto& entry : fs::directory_iterator(checkpoints_folder(folder), ignored)) files.push_back(entry.path());
  }
  return files;
}

void refuse_empty(const Command& verb, const std::vector<std::pair<std::string, std::string>>& flags,
                  const std::string& advice) {
  for (const auto& [name, value] : flags)
    if (value.empty() && verb.count(name) > 0) fail(fmt::format("{} is empty; {}, or leave it out", name, advice));
}

void add_data_documents(const Command& verb, std::string& kind) {
  verb.add_option(
      "--data-documents", kind,
      "of runs that read documents: what separates those of --data: lines, whole (it is one document), or a "
      "marker; default: as in training (data.documents)");
}

void add_min_fill(const Command& verb, double& share) {
  verb.add_option("--min-fill", share,
                  "of runs that read documents: only those that fill at least this share of the window, as 0.9")
      .check(number(0.0, 1.0));
}

void add_precision(const Command& verb, std::string& precision) {
  verb.add_option("--precision", precision,
                  "bf16: weights and memory in bfloat16, half the bytes: much faster where they come from memory, and "
                  "numbers that differ in the third digit")
      .check(one_of({"float32", "bf16"}))
      .shows_default();
}

void add_device(const Command& verb, std::string& device) {
  verb.add_option("--device", device, "what to compute on: cpu, or where libtorch has it cuda or cuda:N")
      .type_name("NAME")
      .shows_default();
}

void add_threads(const Command& verb, int64_t& threads) {
  verb.add_option("--threads", threads,
                  "cores to use; default: all; where other programs run too, 1 may be faster for a small model")
      .check(whole_number(1, 4096));
}

}  // namespace lapse
