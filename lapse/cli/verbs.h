// The verbs of the command `lapse`, one file each.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lapse/cli/command.h"
#include "lapse/core/file.h"
#include "lapse/read/reader.h"

namespace lapse {

/// What a verb does once its arguments are parsed; returns the exit status.
using Action = std::function<int()>;

/// Each adds its subcommand to the program and sets `action` when that subcommand was chosen.
void add_init(const Command& program, Action& action);
void add_train(const Command& program, Action& action);
void add_eval(const Command& program, Action& action);
void add_generate(const Command& program, Action& action);
void add_info(const Command& program, Action& action);
void add_import(const Command& program, Action& action);
void add_export(const Command& program, Action& action);
void add_golden(const Command& program, Action& action);
void add_prune(const Command& program, Action& action);
void add_tokenizer(const Command& program, Action& action);
void add_inspect(const Command& program, Action& action);
void add_serve(const Command& program, Action& action);
void add_play(const Command& program, Action& action);
void add_task(const Command& program, Action& action);
void add_plot(const Command& program, Action& action);
void add_help(const Command& program, Action& action);
void add_completion(const Command& program, Action& action);

/// What `lapse --version` prints: version, commit, torch and instruction set.
std::string version_text();

// --- shared by the verbs ---------------------------------------------------------------------------------------------

/// Declares --method and the reading options of every method (--max-span 256), and explains them in --help.
void add_method_options(const Command& verb, ReadingOptions& reading);
/// The reading options of every task.
void add_task_options(const Command& verb, ReadingOptions& reading);

/// A configuration with this task or environment, and these values of its own section ("corridor.longest=9").
Config generating(const std::string& name, const std::vector<std::string>& set);
/// A configuration with these values of its task's or environment's section.
Config generating_otherwise(Config config, const std::vector<std::string>& set);

/// Error if `path`, the value of a flag, is a folder or in none that exists: before the work rather than after it.
void check_out(const fs::path& path, const std::string& flag = "--out");

/// Reads `file` in place of the configuration's texts; "": changes nothing.
void use_text(DataConfig& data, const std::string& file);

/// Error if `path`, the value of a flag that is to be written, is one of the files that are read: those given, of which
/// some may be "", or the texts of a run.
void check_apart(const fs::path& path, const std::string& flag, std::vector<std::string> read,
                 const DataConfig& run = {});
/// Error if it is a file that some run consists of.
void check_of_no_run(const fs::path& path, const std::string& flag);

/// What `path` must not be if these runs, each a folder or a checkpoint, are to stay whole: their checkpoints,
/// configurations and metrics.
std::vector<std::string> files_of_runs(const std::vector<std::string>& runs);

/// Error if one of these flags was given an empty value, such as an unset variable of a shell: nothing else than what
/// was asked for may be read.
void refuse_empty(const Command& verb, const std::vector<std::pair<std::string, std::string>>& flags,
                  const std::string& advice = "name a file");

/// What a run of this configuration would take, printed and not written: parameters, memory, time per update. A
/// warning says so if training would refuse it, or if it would not fit into memory.
int dry_run(const Config& config, double seconds, bool json);

/// A verb's action for which memory may not suffice: a failed allocation becomes an Error that says how large it was
/// and what to do.
Action within_memory(std::string advice, Action action);

/// Declares --data-documents, DocumentOptions::kind.
void add_data_documents(const Command& verb, std::string& kind);
/// Declares --min-fill, of DocumentOptions.
void add_min_fill(const Command& verb, double& share);

/// Declares --precision: of reading with a trained model.
void add_precision(const Command& verb, std::string& precision);

/// Declares --device: of find_device.
void add_device(const Command& verb, std::string& device);

/// Declares --threads.
void add_threads(const Command& verb, int64_t& threads);

}  // namespace lapse
