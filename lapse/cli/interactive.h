// `lapse generate --interactive`: a model that goes on from what is typed, line by line, and remembers what it can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lapse/data/vocabulary.h"
#include "lapse/read/generator.h"

namespace lapse {

struct InteractiveOptions {
  std::string prompt;  ///< read before the first line
  int64_t tokens = 0;  ///< of each answer; 0: until Ctrl-C
  bool colour = false;
};

/// The model reads tokens, and stops between blocks once the process is interrupted. How many it has read.
int64_t read_tokens(Generator& generator, const Transformer& model, const std::vector<int32_t>& tokens);

/// Reads lines until the end of standard input, or until the process is interrupted (core/process.h) while no answer is
/// written. Error if it is interrupted within the prompt. What the model writes and what commands ask for goes to
/// standard output, all else to standard error.
void talk(Generator& generator, const Transformer& model, const Vocabulary& vocabulary,
          const InteractiveOptions& options);

}  // namespace lapse
