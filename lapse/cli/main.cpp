// The command `lapse`.
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <new>

#include "lapse/cli/help.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"

namespace {

int report(const std::string& message) {
  std::cout.flush();
  std::cerr << "lapse: error: " << message << '\n';
  return 1;
}

int run(int argc, char** argv) {
  CLI::App program("Transformers that learn to forget: train, evaluate and use language models whose memories expire.",
                   "lapse");
  lapse::set_help_format(program);
  program.set_help_flag("-h,--help", "print this help");
  program.set_version_flag("--version", lapse::version_text, "print version, commit, torch and instruction set");
  program.require_subcommand(1);
  lapse::Action action;
  lapse::add_init(program, action);
  lapse::add_train(program, action);
  lapse::add_eval(program, action);
  lapse::add_generate(program, action);
  lapse::add_info(program, action);
  lapse::add_import(program, action);
  lapse::add_export(program, action);
  lapse::add_golden(program, action);
  lapse::add_prune(program, action);
  lapse::add_tokenizer(program, action);
  lapse::add_inspect(program, action);
  lapse::add_play(program, action);
  lapse::add_task(program, action);
  lapse::add_plot(program, action);
  lapse::add_help(program, action);
  lapse::add_completion(program, action);
  program.footer(
      "A first run:\n"
      "  lapse init demo -o my.toml                      # a small configuration; `lapse init` lists them\n"
      "  lapse train my.toml --data book.txt --out runs/book\n"
      "  lapse generate runs/book --prompt \"The sea\" --remembered\n"
      "`lapse help VERB` explains a verb.");
  std::vector<std::string> verbs;
  for (auto* verb : program.get_subcommands({})) {
    verb->allow_extras();  // so that we can name the nearest flag
    verbs.push_back(verb->get_name());
  }
  if (argc > 1 && argv[1][0] != '-' && std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end())
    return report("unknown verb '" + std::string(argv[1]) + "'" + lapse::did_you_mean(std::string(argv[1]), verbs) +
                  "; see lapse help");
  const auto help = lapse::help_wanted(program, argc, argv);
  try {
    if (help)
      action = [&] { return std::cout << lapse::help_text(program, *help), 0; };
    else
      program.parse(argc, argv);
  } catch (const CLI::Success& version) {  // --version
    const int status = program.exit(version);
    return std::cout.flush() ? status : report("cannot write to standard output (is the disk full?)");
  } catch (const CLI::ParseError& error) {
    for (auto* verb : program.get_subcommands()) lapse::refuse_extras(*verb);  // a mistyped flag is the likelier cause
    report(lapse::explain(program, error));
    return 2;
  }
  const int status = action();
  if (!std::cout.flush()) return report("cannot write to standard output (is the disk full?)");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  lapse::hold_standard_streams();
  lapse::wait_politely(argv);
  try {
    return run(argc, argv);
  } catch (const lapse::Error& error) {
    return report(error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report("cannot use '" + error.path1().string() + "': " + error.code().message());
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return report("out of memory (in training, a smaller train.batch or train.block, or more train.parts, takes less)");
  } catch (const std::exception& error) {
    return report(error.what());
  }
}
