// The file in which a search for budgets keeps its rounds, so that it can go on after an interruption.
#pragma once

#include <string>
#include <vector>

#include "lapse/core/file.h"
#include "lapse/core/json.h"
#include "lapse/read/prune.h"

namespace lapse {

/// {"settings": ..., "rounds": [...]} at `path`. `settings` say what a search depends on; "context" and "step" among
/// them. `checkpoint`: where the search is to write what it finds.
class RoundsFile {
 public:
  RoundsFile(fs::path path, fs::path checkpoint, Json settings)
      : path_(std::move(path)), checkpoint_(std::move(checkpoint)), settings_(std::move(settings)) {}

  /// The rounds of an interrupted search with these settings; none if there was none. The file of a search with other
  /// settings is kept beside, as NAME.old.json, and its checkpoint likewise; a note says so. Error if the file is of
  /// another form.
  std::vector<PruneRound> earlier(size_t layers);
  /// Writes the rounds, and `more` that the search found. Returns all that the file holds.
  Json save(const std::vector<PruneRound>& rounds, const Json& more = Json::object()) const;
  /// Before the search's checkpoint is written; `reached`: whether one is. Keeps what lies there as NAME.old, with a
  /// note, unless these rounds gave it and another of them takes its place.
  void keep_checkpoint(bool reached) const;

 private:
  void put_aside(Json json, const std::string& other) const;

  fs::path path_, checkpoint_;
  Json settings_;
  bool wrote_checkpoint_ = false;  ///< a search with these settings did
};

}  // namespace lapse
