// Where a text that is being written ends: before the one of some texts, named by its asker, that is whole first.
#pragma once

#include <string>
#include <vector>

namespace lapse {

class Stops {
 public:
  /// None of them empty.
  explicit Stops(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  /// More of the text; returns what can be shown now. A stop may begin in one piece and end in a later one, so what one
  /// may begin with is held back.
  std::string add(const std::string& piece);
  /// What was held back, where nothing more comes.
  std::string rest();
  /// Whether a stop came: the text ends before it.
  bool met() const { return met_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool met_ = false;
};

}  // namespace lapse
