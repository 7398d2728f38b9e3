// `lapse generate --interactive`: a model that goes on from what is typed, line by line, and remembers what it can.
#pragma once

#include <string>

#include "lapse/data/vocabulary.h"
#include "lapse/read/generator.h"

namespace lapse {

struct InteractiveOptions {
  std::string prompt;  ///< read before the first line
  int64_t tokens = 0;  ///< of each answer; 0: until Ctrl-C
  bool colour = false;
};

/// Reads lines until the end of standard input, or until the process is interrupted (core/process.h) while no answer is
/// written. Error if it is interrupted within the prompt. What the model writes and what commands ask for goes to
/// standard output, all else to standard error.
void talk(Generator& generator, const Transformer& model, const Vocabulary& vocabulary,
          const InteractiveOptions& options);

}  // namespace lapse
