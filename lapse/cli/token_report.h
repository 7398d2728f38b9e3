// Losses of a text token by token: a file of JSON lines, and of two readings where they differ most.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lapse/core/file.h"
#include "lapse/core/json.h"
#include "lapse/data/corpus.h"
#include "lapse/train/evaluate.h"

namespace lapse {

class TokenReport {
 public:
  /// Text and vocabulary must outlive the report. `file`: of the lines; empty: none. Error if it cannot be written.
  TokenReport(const Tokens& text, const Vocabulary& vocabulary, const std::string& file);

  /// The next block as one reading found it, and perhaps as another did.
  void add(const TokenBlock& block, const TokenLosses& own, const TokenLosses* other);
  /// Puts the file in its place. Error if a line could not be written.
  void close();

  double mean_difference() const { return sum_ / static_cast<double>(std::max<int64_t>(count_, 1)); }
  /// The tokens whose losses differ most, the largest difference first: at, token, text, before, after, nats,
  /// against_nats.
  Json largest_differences() const;

 private:
  struct Difference {
    int64_t at = 0;  // in the text
    double own = 0, other = 0;

    double size() const { return std::abs(own - other); }
  };

  std::string bytes_of(int64_t begin, int64_t end) const;

  const Tokens& text_;
  const Vocabulary& vocabulary_;
  std::optional<FileWriter> file_;
  std::vector<Difference> largest_;  // a heap, the smallest first
  double sum_ = 0;                   // of the differences
  int64_t count_ = 0;
};

/// The list of TokenReport::largest_differences, for people.
std::string table_of(const Json& differences);

}  // namespace lapse
