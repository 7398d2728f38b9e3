#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/interop/golden.h"
#include "lapse/train/threads.h"

namespace lapse {
namespace {

struct Arguments {
  std::vector<std::string> files;
  std::string precision = "float32";
  double tolerance = 1e-4;
  bool json = false;
};

/// Alive counts are compared exactly.
bool agrees(const GoldenError& error, double tolerance) {
  return error.what == "alive" ? error.error == 0 : error.error <= tolerance;
}

int run(const Arguments& arguments) {
  use_threads(0);
  bool all_agree = true;
  Json files = Json::array();
  for (const auto& path : arguments.files) {
    const SafetensorsFile file(path);
    const auto errors = run_golden(file, arguments.precision == "float64" ? at::kDouble : at::kFloat);
    Json json = {{"file", path}, {"errors", Json::object()}};
    if (!arguments.json) std::cout << path << '\n';
    bool file_agrees = true;
    for (const auto& e : errors) {
      const bool ok = agrees(e, arguments.tolerance);
      file_agrees = file_agrees && ok;
      json["errors"][e.what] = {{"largest", e.error}, {"tensor", e.tensor}, {"tensors", e.tensors}, {"ok", ok}};
      if (!arguments.json)
        std::cout << fmt::format("  {:<10} {:>9.2e}  {:<4} {} tensors{}\n", e.what, e.error, ok ? "ok" : "BAD",
                                 e.tensors, e.error > 0 ? ", largest at " + e.tensor : "");
    }
    json["ok"] = file_agrees;
    files.push_back(json);
    all_agree = all_agree && file_agrees;
  }
  if (arguments.json)
    std::cout << to_text({{"tolerance", arguments.tolerance}, {"ok", all_agree}, {"files", files}}, 2) << '\n';
  return all_agree ? 0 : 1;
}

}  // namespace

void add_golden(const Command& program, Action& action) {
  const Command verb = program.add_verb("golden", "Compare our numbers with files that another implementation wrote");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("files", arguments->files, "safetensors files: weights, inputs, and the numbers to agree with")
      .required()
      .type_name("FILE");
  verb.add_option("--tolerance", arguments->tolerance,
                  "largest error, relative to each tensor's largest absolute value")
      .check(number(0.0, 1.0))
      .shows_default();
  verb.add_option("--precision", arguments->precision, "to compute in")
      .check(one_of({"float32", "float64"}))
      .shows_default();
  verb.add_flag("--json", arguments->json, "print one JSON object");
  verb.footer(
      "Exit status 0 if everything is within the tolerance (numbers of live memories: equal), else 1.\n"
      "The repository has files in tests/golden.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("give fewer files", [=] { return run(*arguments); });
  });
}

}  // namespace lapse
