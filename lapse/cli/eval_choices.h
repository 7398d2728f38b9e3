// `lapse eval --choices`: multiple choice.
#pragma once

#include <string>

#include "lapse/read/reader.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lapse {

struct ChoicesArguments {
  std::string questions, labels;
};

/// Declares --choices and --labels.
void add_choices(CLI::App& verb, ChoicesArguments& arguments);

/// Answers the questions of the file and prints how many are right; returns the exit status.
int eval_choices(Reader& reader, const ChoicesArguments& arguments, bool json);

}  // namespace lapse
