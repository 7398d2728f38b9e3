// The file in which a search for budgets keeps its rounds, so that it can go on after an interruption.
#pragma once

#include <vector>

#include "lapse/core/file.h"
#include "lapse/core/json.h"
#include "lapse/read/prune.h"

namespace lapse {

/// {"settings": ..., "rounds": [...]} at `path`. `settings` say what a search depends on; "context" and "step" among
/// them.
class RoundsFile {
 public:
  RoundsFile(fs::path path, Json settings) : path_(std::move(path)), settings_(std::move(settings)) {}

  /// The rounds of an interrupted search with these settings; none if there was none. Error if the file is of another
  /// form.
  std::vector<PruneRound> earlier(size_t layers) const;
  void save(const std::vector<PruneRound>& rounds) const;
  /// The rounds, and whatever else the search found.
  void save(const Json& result) const;

  const Json& settings() const { return settings_; }

 private:
  fs::path path_;
  Json settings_;
};

/// [{"total", "loss", "budgets"}, ...]
Json to_json(const std::vector<PruneRound>& rounds);

}  // namespace lapse
