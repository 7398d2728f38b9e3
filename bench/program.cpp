#include "bench/program.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <ctime>
#include <iostream>
#include <new>

#include "bench/models.h"
#include "lapse/core/error.h"
#include "lapse/core/file.h"

namespace lapse::bench {
namespace {

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

int report(const Program& program, const std::string& message) {
  std::cout.flush();
  std::cerr << program.name << ": error: " << first_line(message) << '\n';
  return 1;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

/// The commit that is checked out, "" outside a checkout.
std::string commit() {
  FILE* pipe = popen("git -C '" LAPSE_SOURCE "' rev-parse --short HEAD 2>/dev/null", "r");
  if (!pipe) return "";
  char text[64] = "";
  const bool read = std::fgets(text, sizeof text, pipe) != nullptr;
  return pclose(pipe) == 0 && read ? first_line(text) : "";
}

Json header(const Program& program, const Common& common) {
  return {{"benchmark", program.name}, {"processor", processor()}, {"threads", at::get_num_threads()},
          {"libtorch", TORCH_VERSION}, {"date", today()},          {"commit", commit()},
          {"quick", common.quick}};
}

int run_parsed(const Program& program, const Common& common) {
  if (common.threads > 0) at::set_num_threads(common.threads);
  if (!common.child.empty()) {
    program.child(common);
    std::cout << own_memory().dump() << std::endl;
    return 0;
  }
  if (const fs::path folder = fs::path(common.json).parent_path(); !folder.empty() && !fs::is_directory(folder))
    fail(fmt::format("--json: there is no folder {}", folder.string()));  // now, not after the measurement
  Json json = header(program, common);
  std::cout << fmt::format("{} on {}, {} threads{}\n", program.name, json["processor"].get<std::string>(),
                           at::get_num_threads(), common.quick ? "; --quick: these are no measurements" : "")
            << std::flush;
  json.update(program.run(common));
  if (!common.json.empty()) write_file(common.json, json.dump(1) + "\n");
  if (!std::cout.flush()) fail("cannot write to standard output");
  return 0;
}

int parse_and_run(const Program& program, int argc, char** argv) {
  CLI::App parser(program.about, program.name);
  const Command app(parser);
  Common common;
  app.add_option("--threads", common.threads, "threads; 0: one for each core")
      .check(whole_number(0, 1024))
      .shows_default();
  app.add_option("--json", common.json, "write the results to this file");
  app.add_flag("--quick", common.quick, "tiny shapes, one repeat: tells that the program works, not how fast it is");
  if (program.child) app.add_option("--child", common.child).group("");  // hidden: the program starts itself so
  program.add_options(app);
  try {
    parser.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return parser.exit(help);
  } catch (const CLI::ParseError& error) {
    report(program, error.what());
    return 2;
  }
  return run_parsed(program, common);
}

}  // namespace

std::vector<std::string> Common::child_arguments(const std::string& path) const {
  std::vector<std::string> all = {"--child", path, "--threads", std::to_string(threads)};
  if (quick) all.emplace_back("--quick");
  return all;
}

int run_program(const Program& program, int argc, char** argv) {
  try {
    return parse_and_run(program, argc, argv);
  } catch (const c10::Error& error) {
    return report(program, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return report(program, "out of memory");
  } catch (const std::exception& error) {
    return report(program, error.what());
  }
}

void add_precision(const Command& app, std::string& precision) {
  app.add_option("--precision", precision, "of the step's products, as train.precision")
      .check(one_of({"float32", "bf16"}))
      .shows_default();
}

}  // namespace lapse::bench
