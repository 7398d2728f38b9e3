#include "lapse/cli/program.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

#include "lapse/cli/help.h"

namespace lapse {

Program::Program()
    : app_(std::make_unique<CLI::App>(
          "Transformers that learn to forget: train, evaluate and use language models whose memories expire.",
          "lapse")) {
  set_help_format(*app_);
  app_->set_help_flag("-h,--help", "print this help");
  app_->set_version_flag("--version", version_text, "print version, commit, torch and instruction set");
  app_->require_subcommand(1);
  for (const auto add :
       {add_init, add_train, add_eval, add_generate, add_info, add_import, add_export, add_golden, add_prune,
        add_tokenizer, add_inspect, add_serve, add_play, add_task, add_plot, add_help, add_completion})
    add(Command(*app_), action_);
  for (auto* verb : app_->get_subcommands({})) verb->allow_extras();  // so that we can name the nearest flag
  app_->footer(
      "A first run:\n"
      "  lapse init demo -o my.toml                      # a small configuration; `lapse init` lists them\n"
      "  lapse train my.toml --data book.txt --out runs/book\n"
      "  lapse generate runs/book --prompt \"The sea\" --remembered\n"
      "`lapse help VERB` explains a verb.");
}

Program::~Program() = default;

Action Program::parse(int argc, const char* const* argv) {
  try {
    return understood(argc, argv);
  } catch (const Misuse&) {
    throw;
  } catch (const Error& error) {
    throw Misuse(error.what());
  }
}

Action Program::understood(int argc, const char* const* argv) {
  action_ = {};
  std::vector<std::string> verbs;
  for (const auto* verb : app_->get_subcommands({})) verbs.push_back(verb->get_name());
  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_flag = first.starts_with('-');
  const auto known = is_flag ? std::vector<std::string>{"-h", "--help", "--version"} : verbs;
  if (argc > 1 && std::ranges::find(known, first) == known.end())
    fail(
        fmt::format("unknown {} '{}'{}; see lapse help", is_flag ? "flag" : "verb", first, did_you_mean(first, known)));
  if (const auto words = help_wanted(*app_, argc, argv))
    return [this, words = *words] { return std::cout << help_text(*app_, words), 0; };
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& version) {  // --version
    return [this, version] { return app_->exit(version); };
  } catch (const CLI::ParseError& error) {
    for (auto* verb : app_->get_subcommands()) Command(*verb).refuse_extras();  // a mistyped flag is the likelier cause
    throw Misuse(one_line(explain(*app_, error)));
  }
  return action_;
}

}  // namespace lapse
