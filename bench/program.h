// The frame that the benchmark programs share: options, errors, and the JSON that each writes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "lapse/cli/command.h"

namespace lapse::bench {

using lapse::Command, lapse::one_of, lapse::whole_number;

struct Common {
  int threads = 0;     ///< 0: one for each core
  bool quick = false;  ///< tiny shapes, one repeat: tells that the program works, not how fast it is
  std::string json;    ///< file to write
  std::string child;   ///< in a child process: the path that it measures

  /// What a child process needs of these to do the same work.
  std::vector<std::string> child_arguments(const std::string& path) const;
};

struct Program {
  std::string name;
  std::string about;
  std::function<void(const Command&)> add_options;
  std::function<Json(const Common&)> run;    ///< prints results, and returns them for the file
  std::function<void(const Common&)> child;  ///< does the work of one path; may be absent
};

/// The whole of main. Exit status 2 for a wrong command line, 1 for other errors, each with one line on stderr.
int run_program(const Program& program, int argc, char** argv);

/// Declares --precision.
void add_precision(const Command& app, std::string& precision);

}  // namespace lapse::bench
