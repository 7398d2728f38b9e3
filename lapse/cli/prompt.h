// The text that a model goes on from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lapse/data/vocabulary.h"
#include "lapse/read/generator.h"

namespace lapse {

/// The prompt of --prompt TEXT, of --prompt - (standard input) or of --prompt-file FILE, without the last line end of
/// what was read. Error if there is none, or it cannot be read.
std::string read_prompt(const std::string& prompt, const std::string& file);

/// Its tokens. Error if it cannot be encoded; `origin` ("--prompt") begins the message.
std::vector<int32_t> encode_prompt(const Vocabulary& vocabulary, const std::string& prompt, const std::string& origin);

/// The model reads tokens, and stops between blocks once the process is interrupted. How many it has read.
int64_t read_tokens(Generator& generator, const Transformer& model, const std::vector<int32_t>& tokens);

}  // namespace lapse
