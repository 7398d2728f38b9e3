#include <fmt/format.h>

#include "lapse/cli/help.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/group.h"
#include "lapse/core/process.h"
#include "lapse/forgetting/registry.h"
#include "lapse/train/resume.h"
#include "lapse/train/run_folder.h"
#include "lapse/train/trainer.h"

namespace lapse {
namespace {

struct Arguments {
  std::string config, data, device, out;
  std::vector<std::string> set;
  int64_t threads = -1;
  bool resume = false, quiet = false, dry_run = false, json = false;
  double seconds = 10, patience = kPatience;
};

constexpr int kInterruptedStatus = 130;  // as a shell reports a process that Ctrl-C ended

/// What is printed below the options.
std::string footer() {
  return "Ctrl-C saves a checkpoint and leaves with status 130. Several processes share a batch by torchrun: "
         "docs/parallel.md.\n\n"
         "A small configuration; every other key has a default:\n\n"
         "  [data]\n"
         "  path = \"book.txt\"  # any text, plain or gzip\n"
         "  [forgetting]\n"
         "  method = \"" +
         default_method().name +
         "\"\n"
         "  [train]\n"
         "  updates = 500\n\n"
         "Sections of a configuration. `lapse train --help SECTION` explains the keys of one, `--help all` every "
         "key:\n" +
         section_list();
}

/// A value that nothing depends on is hardly meant. Files may have several methods' sections, to choose from.
void tell_unused(Config& config, const std::vector<std::string>& set) {
  for (const auto& assignment : set) {
    const auto [name, key, value] = assignment_of(assignment);
    if (!config.uses(name)) {
      fmt::print(stderr, "lapse: note: --set {} has no effect: this run does not use [{}]\n", assignment, name);
      continue;
    }
    for (const Section& section : config.sections())
      for (const Field& field : section.fields)
        if (section.name == name && field.name == key && field.is_used && !field.is_used())
          fmt::print(stderr,
                     "lapse: note: --set {} has no effect on this run; lapse train --help {} says what uses it\n",
                     assignment, name);
  }
}

/// A file with a section of a method that is named neither there nor by --set: it was hardly meant for the default one.
void tell_unnamed_method(const Config& config, const std::string& file, const std::vector<std::string>& in_file,
                         const std::vector<std::string>& set) {
  const auto names_it = [](const std::string& assignment) {
    const auto [section, key, value] = assignment_of(assignment);
    return section == "forgetting" && key == "method";
  };
  if (std::ranges::find(in_file, "forgetting.method") != in_file.end() || std::ranges::any_of(set, names_it)) return;
  for (const auto& method : method_table()) {
    const auto is_its = [&](const std::string& key) { return key.starts_with(method.name + "."); };
    if (method.name != config.method_name && std::ranges::any_of(in_file, is_its))
      fmt::print(stderr,
                 "lapse: note: [{0}] of '{1}' has no effect: no method is named, so it is {2}; to use {0} set "
                 "forgetting.method = \"{0}\"\n",
                 method.name, file, config.method_name);
  }
}

/// A flag stands in place of what --set says of these keys.
void tell_replaced(const std::vector<std::string>& set, const std::vector<std::string>& keys, const char* flag) {
  for (const auto& assignment : set) {
    const auto [section, key, value] = assignment_of(assignment);
    if (std::ranges::find(keys, section + "." + key) != keys.end())
      fmt::print(stderr, "lapse: note: --set {} has no effect: {} stands in its place\n", assignment, flag);
  }
}

/// A dry run writes nothing into --out, but says what the run itself would meet there.
void tell_other_run(const std::string& out) {
  if (out.empty()) return;
  try {
    require_no_run(out);
  } catch (const Error& error) {
    fmt::print(stderr, "lapse: warning: training would refuse this: {}\n", error.what());
  }
}

int run(const Command& verb, const Arguments& arguments) {
  refuse_empty(verb, {{"--data", arguments.data}, {"--out", arguments.out}});
  if (is_folder(arguments.config))
    fail(fmt::format("'{}' is a folder; name a TOML file (that of a run is {})", arguments.config,
                     config_path(arguments.config).string()));
  Config config;
  const auto in_file = read_config(config.sections(), arguments.config);
  for (const auto& assignment : arguments.set) set_config(config.sections(), assignment);
  use_text(config.data, arguments.data);
  if (!arguments.device.empty()) config.train.device = arguments.device;
  if (arguments.threads >= 0) config.train.threads = arguments.threads;
  if (arguments.dry_run && arguments.resume) fail("--dry-run tries a run from its beginning; leave out --resume");
  Group& group = arguments.dry_run ? solo() : join_group(arguments.patience);
  if (group.first()) tell_unused(config, arguments.set);
  if (group.first()) tell_unnamed_method(config, arguments.config, in_file, arguments.set);
  if (group.first() && !arguments.data.empty())
    tell_replaced(arguments.set, {"data.path", "data.train", "data.valid", "data.test"}, "--data");
  if (group.first() && !arguments.device.empty()) tell_replaced(arguments.set, {"train.device"}, "--device");
  if (group.first() && arguments.threads >= 0) tell_replaced(arguments.set, {"train.threads"}, "--threads");
  catch_interrupts();  // while ranks still look for each other Ctrl-C ends them
  if (arguments.dry_run) {
    tell_other_run(arguments.out);
    return dry_run(config, arguments.seconds, arguments.json);
  }
  const auto outcome =
      train(config, arguments.out, {.resume = arguments.resume, .quiet = arguments.quiet, .group = group});
  return outcome == Outcome::kFinished ? 0 : kInterruptedStatus;
}

}  // namespace

void add_train(const Command& program, Action& action) {
  const Command verb = program.add_verb("train", "Train a model on a text or a task, as a TOML file says");
  auto arguments = std::make_shared<Arguments>();
  verb.set_help_flag("-h,--help", "print this help; --help SECTION: the keys of a section below");
  verb.add_option("config", arguments->config, "the TOML file; only data.path, data.train or data.task is required")
      .required()
      .type_name("CONFIG.toml");
  const Argument out = verb.add_option("--out", arguments->out,
                                       "folder of the run: checkpoints, metrics.jsonl, tensorboard, config.toml");
  out.required().type_name("RUN");
  verb.add_option("--data", arguments->data, "the text to read, in place of the configuration's: data.path=FILE")
      .type_name("FILE");
  verb.add_option("--device", arguments->device, "what to compute on: short for --set train.device=NAME")
      .type_name("NAME");
  verb.add_option("--threads", arguments->threads, "cores to use; 0: all. Short for --set train.threads=N")
      .check(whole_number(0, 4096));
  verb.add_option("--set", arguments->set, "a value over the file's; may be repeated: of one key the last counts")
      .type_name("SECTION.KEY=VALUE")
      .repeats();
  verb.add_flag("--resume", arguments->resume,
                "continue bit for bit from the newest complete checkpoint in --out; without one, start");
  verb.add_flag("--quiet", arguments->quiet, "no progress");
  const auto try_only = [=] { arguments->dry_run = true, out.required(false); };
  const Argument trial = verb.add_flag(
      "--dry-run", try_only, "write nothing: try some updates, and report the run's parameters, memory and time");
  verb.add_option("--seconds", arguments->seconds, "with --dry-run: try for so long; 0: only estimates")
      .check(number(0, 3600))
      .shows_default()
      .type_name("S")
      .needs(trial);
  verb.add_option("--patience", arguments->patience, "with torchrun: how long a process waits for the others")
      .check(number(1, 1e6))
      .shows_default()
      .type_name("S");
  verb.add_flag("--json", arguments->json, "with --dry-run: print one JSON object").needs(trial);
  verb.footer(footer());
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower train.batch, train.block or the model's size, or raise train.parts",
                           [=] { return run(verb, *arguments); });
  });
}

}  // namespace lapse
