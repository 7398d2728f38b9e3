// `lapse eval --choices`: multiple choice.
#pragma once

#include <string>

#include "lapse/cli/command.h"
#include "lapse/read/reader.h"

namespace lapse {

struct ChoicesArguments {
  std::string questions, labels;
};

/// Declares --choices and --labels.
void add_choices(const Command& verb, ChoicesArguments& arguments);

/// Answers the questions of the file and prints how many are right; returns the exit status. `reading` opened the
/// reader.
int eval_choices(Reader& reader, const ReadingOptions& reading, const ChoicesArguments& arguments, bool json);

}  // namespace lapse
