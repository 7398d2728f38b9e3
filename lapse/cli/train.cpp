#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/train/trainer.h"

namespace lapse {
namespace {

struct Arguments {
  std::string config, data, out;
  std::vector<std::string> set;
  bool resume = false, quiet = false, dry_run = false, json = false;
};

constexpr int kInterruptedStatus = 130;  // as a shell reports a process that Ctrl-C ended

int run(const Arguments& arguments) {
  Config config;
  read_config(config.sections(), arguments.config);
  for (const auto& assignment : arguments.set) set_config(config.sections(), assignment);
  if (!arguments.data.empty()) config.data.path = fs::absolute(arguments.data).string();
  catch_interrupts();
  if (arguments.dry_run) return dry_run(config, arguments.json);
  if (arguments.out.empty()) fail("--out is required: the folder of the run");
  const auto outcome = train(config, arguments.out, {.resume = arguments.resume, .quiet = arguments.quiet});
  return outcome == Outcome::kFinished ? 0 : kInterruptedStatus;
}

}  // namespace

void add_train(CLI::App& program, Action& action) {
  auto* verb = program.add_subcommand("train", "Train a model on a text or a task, as a TOML file says");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("config", arguments->config, "the TOML file; every key is optional but data.path or data.task")
      ->required();
  verb->add_option("--out", arguments->out, "folder of the run: checkpoints, metrics.jsonl, tensorboard, config.toml");
  verb->add_option("--data", arguments->data, "the text to read: short for --set data.path=FILE");
  verb->add_option("--set", arguments->set, "SECTION.KEY=VALUE, over the file's value; may be repeated")
      ->expected(1)
      ->take_all();
  verb->add_flag("--resume", arguments->resume,
                 "continue the run in --out from its newest whole checkpoint, to the bit");
  verb->add_flag("--quiet", arguments->quiet, "no progress");
  auto* trial =
      verb->add_flag("--dry-run", arguments->dry_run,
                     "write nothing: try some updates, and say what the run takes in parameters, memory and time");
  verb->add_flag("--json", arguments->json, "with --dry-run: print one JSON object")->needs(trial);
  Config defaults;
  verb->footer(
      "Ctrl-C saves a checkpoint and leaves with status 130.\n\nKeys of the TOML file, with their defaults:\n" +
      config_help(defaults.sections()));
  verb->callback([=, &action] {
    refuse_extras(*verb);
    action = within_memory("lower train.batch, train.block or the model's size, or raise train.parts",
                           [=] { return run(*arguments); });
  });
}

}  // namespace lapse
