// The verbs of the command `lapse`, one file each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lapse/core/file.h"
#include "lapse/read/reader.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace lapse {

/// What a verb does once its arguments are parsed; returns the exit status.
using Action = std::function<int()>;

/// Each adds its subcommand to the program and sets `action` when that subcommand was chosen.
void add_init(CLI::App& program, Action& action);
void add_train(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_generate(CLI::App& program, Action& action);
void add_info(CLI::App& program, Action& action);
void add_import(CLI::App& program, Action& action);
void add_export(CLI::App& program, Action& action);
void add_golden(CLI::App& program, Action& action);
void add_prune(CLI::App& program, Action& action);
void add_tokenizer(CLI::App& program, Action& action);
void add_inspect(CLI::App& program, Action& action);
void add_serve(CLI::App& program, Action& action);
void add_play(CLI::App& program, Action& action);
void add_task(CLI::App& program, Action& action);
void add_plot(CLI::App& program, Action& action);
void add_help(CLI::App& program, Action& action);
void add_completion(CLI::App& program, Action& action);

/// What `lapse --version` prints: version, commit, torch and instruction set.
std::string version_text();

// --- shared by the verbs ---------------------------------------------------------------------------------------------

/// Error, with the nearest flag, if arguments are left over.
void refuse_extras(const CLI::App& verb);

/// Checks of an option's value: a whole number or a number within bounds (inclusive), or one of these names. They tell
/// what is no number from what is out of range, and suggest the nearest name. The help and the shells' completion
/// show what they describe.
CLI::Validator whole_number(int64_t low, int64_t high);
CLI::Validator number(double low, double high);
CLI::Validator one_of(const std::vector<std::string>& names);

/// Declares --method and the reading options of every method (--max-span 256), and explains them in --help.
void add_method_options(CLI::App& verb, ReadingOptions& reading);
/// The reading options of every task.
void add_task_options(CLI::App& verb, ReadingOptions& reading);

/// A configuration with this task or environment, and these values of its own section ("corridor.longest=9").
Config generating(const std::string& name, const std::vector<std::string>& set);
/// A configuration with these values of its task's or environment's section.
Config generating_otherwise(Config config, const std::vector<std::string>& set);

/// Error if `path`, the value of a flag, is a folder or in none that exists: before the work rather than after it.
void check_out(const fs::path& path, const std::string& flag = "--out");

/// What a run of this configuration would take, printed and not written: parameters, memory, time per update. Error,
/// after that, if it would not fit into memory.
int dry_run(const Config& config, double seconds, bool json);

/// A verb's action for which memory may not suffice: a failed allocation becomes an Error that says how large it was
/// and what to do.
Action within_memory(std::string advice, Action action);

/// Declares --min-fill, of MinFill.
void add_min_fill(CLI::App& verb, double& share);

/// Declares --precision: of reading with a trained model.
void add_precision(CLI::App& verb, std::string& precision);

/// Declares --device: of find_device.
void add_device(CLI::App& verb, std::string& device);

/// Declares --threads.
void add_threads(CLI::App& verb, int64_t& threads);

}  // namespace lapse
