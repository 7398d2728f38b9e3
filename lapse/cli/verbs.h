// The verbs of the command `lapse`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "lapse/data/corpus.h"
#include "lapse/data/source.h"
#include "lapse/train/checkpoint.h"

namespace lapse {

/// What a verb does once its arguments are parsed; returns the exit status.
using Action = std::function<int()>;

/// Each adds its subcommand to the program and sets `action` when that subcommand was chosen.
void add_init(CLI::App& program, Action& action);
void add_train(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_generate(CLI::App& program, Action& action);
void add_info(CLI::App& program, Action& action);
void add_golden(CLI::App& program, Action& action);
void add_prune(CLI::App& program, Action& action);
void add_tokenizer(CLI::App& program, Action& action);
void add_inspect(CLI::App& program, Action& action);
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

/// The group of the forgetting methods' options in --help.
inline constexpr const char* kMethodOptions = "Options of the forgetting method, the run's or that of --method";

/// Declares --method, and the evaluation options of every method (--max-span 256), and explains them in --help.
void add_evaluation_options(CLI::App& verb);

/// Sets those that were given; Error if the checkpoint's method, or that of --method, does not know one.
void set_evaluation_options(const CLI::App& verb, const Checkpoint& checkpoint);

/// The same for the evaluation options of every task.
void add_task_options(CLI::App& verb);
void set_task_options(const CLI::App& verb, const Checkpoint& checkpoint);

/// Error if `path`, the value of --out, is a folder or in none that exists: before the work rather than after it.
void check_out(const fs::path& path);

/// What a run of this configuration would take, printed and not written: parameters, memory, time per update. Error,
/// after that, if it would not fit into memory.
int dry_run(Config& config, bool json);

/// A verb's action for which memory may not suffice: a failed allocation becomes an Error that says how large it was
/// and what to do.
Action within_memory(std::string advice, Action action);

/// Declares --precision: of reading with a trained model.
void add_precision(CLI::App& verb, std::string& precision);

/// Declares --threads.
void add_threads(CLI::App& verb, int64_t& threads);

/// What `lapse eval` reads: the run's task, or text_of. Error if there is a task and `data` too.
std::unique_ptr<Source> source_of(const Checkpoint& checkpoint, const std::string& data, const std::string& split);

/// A split of the text in `data`, cut as the run's configuration says, or if that is empty of the run's own text.
/// Error if the run has a task instead.
Tokens text_of(const Checkpoint& checkpoint, const std::string& data, const std::string& split);

}  // namespace lapse
