// The runs that are served, each opened once for every way in which someone reads it at the moment.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lapse/read/reader.h"

namespace lapse {

/// Which run, and how it is read: over the options that the server was started with.
struct LaneSettings {
  int64_t run = 0;
  std::optional<std::string> method;  ///< as ReadingOptions
  ReadingOptions::Values options;

  auto operator<=>(const LaneSettings&) const = default;
};

struct Opened {
  Reader reader;
  std::unique_ptr<Transformer> model;
  std::string name;  ///< of the run: its folder, or its path where folders are called the same; no other run's
  ReadingOptions::Values options;  ///< of the method, those of the command line among them
};

/// Of a run that acts: the options of the environment that it was trained in.
Json environment_options(const Opened& opened);

/// For one thread.
class Library {
 public:
  /// Opens the newest checkpoint of each run, and stays with it. Error if one cannot be watched: a model that reads a
  /// source, or answers with labels; or if two read other tokens, or see and do other things.
  Library(const ReadingOptions& reading, const std::vector<std::string>& runs);

  int64_t runs() const { return std::ssize(default_); }
  /// As the server was started.
  const Opened& run(int64_t number) const { return *default_[number]; }
  /// Whether that is as the runs were trained.
  bool as_trained() const { return !reading_.method && reading_.of_method.empty(); }
  /// Shared with whoever reads it in the same way. Error if there is no such run, method or option.
  std::shared_ptr<const Opened> open(const LaneSettings& settings);

 private:
  /// The run that is open, read in another way, with the same weights: by now its file may be gone.
  std::shared_ptr<const Opened> open_anew(const LaneSettings& settings) const;

  ReadingOptions reading_;
  std::vector<std::shared_ptr<const Opened>> default_;
  std::map<LaneSettings, std::weak_ptr<const Opened>> others_;
};

}  // namespace lapse
