// The text that a model goes on from.
#pragma once

#include <string>
#include <vector>

#include "lapse/data/vocabulary.h"

namespace lapse {

/// The prompt of --prompt TEXT, of --prompt - (standard input) or of --prompt-file FILE, without the last line end of
/// what was read. Error if there is none, or it cannot be read.
std::string read_prompt(const std::string& prompt, const std::string& file);

/// The next line of standard input, without its end. False after the last. Error if it is longer than any that a person
/// types: a line without end would take all memory.
bool read_line(std::string& line);

/// Its tokens. Error if it cannot be encoded; `origin` ("--prompt") begins the message.
std::vector<int32_t> encode_prompt(const Vocabulary& vocabulary, const std::string& prompt, const std::string& origin);

}  // namespace lapse
