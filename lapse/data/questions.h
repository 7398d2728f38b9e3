// Questions with several candidates, of which one is right, as published files have them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lapse/core/file.h"

namespace lapse {

struct Question {
  std::string context;
  std::vector<std::string> candidates;  ///< what may follow it; white space at their ends is dropped
  int64_t answer = 0;                   ///< which is right
  std::string origin = {};              ///< "FILE:12", for messages
};

/// Reads JSON lines, plain or gzip, each in one of the forms of `question_forms`. `labels`: a file with the number of
/// the right candidate, from 0, one a line; empty: the lines have it. Error, with file and line, for what is no JSON,
/// is in no form or lacks a key.
std::vector<Question> read_questions(const fs::path& path, const fs::path& labels);

/// The same of texts that were read, and what messages call them. Without `labels` the lines have them.
struct NamedText {
  std::string text, origin;
};
std::vector<Question> parse_questions(const NamedText& lines, const std::optional<NamedText>& labels);

/// Which files are read, and by what keys: for --help.
std::string question_forms();

}  // namespace lapse
