// What is recorded of a run: lines of metrics, the validations so far, and what the line of progress says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lapse/core/json.h"
#include "lapse/train/metrics.h"
#include "lapse/train/problem.h"

namespace lapse {

class RunRecord {
 public:
  /// Both must outlive the record. Every rank has one, and calls the same functions.
  RunRecord(const Problem& problem, Group& group) : problem_(problem), group_(group) {}

  /// From now on lines are written, as Metrics says; with `trains` updates will follow, with `validates` a validation
  /// of this one. Of rank 0 alone.
  void write_to(const fs::path& run, int64_t update, bool trains, bool validates) {
    metrics_.emplace(run, update, Repeated{.training = trains && sums_.updates > 0, .validation = validates});
  }

  /// One update, which took so many seconds.
  void add(const Update& made, double seconds);
  /// A line of training: means over the updates since the last one, and the memory that the newest left. Not `whole`:
  /// the run's end came before train.log_every updates. A run that goes on writes it again, with the updates that
  /// follow.
  void training(int64_t update, const Update& newest, bool whole);
  /// A line of validation, which is remembered too.
  void validation(int64_t update, const EvaluationResult& result);

  /// The updates since the last line, for a checkpoint. Times are no part of it.
  Json sums() const;
  void restore(const JsonObject& sums, const Json& validations);
  /// Objects of numbers: update, loss, ...
  const Json& validations() const { return validations_; }

  /// "2.341 bpb  valid 2.400  1.2e+04 tokens/s  memory 120.0"
  std::string note() const { return note_ + valid_note_ + pace_; }
  /// "2.4003 bpb": the newest validation.
  const std::string& newest_validation() const { return newest_validation_; }

 private:
  std::string said(const std::vector<Figure>& figures, int digits) const;
  std::string per_second() const { return std::string(problem_.unit()) + "s_per_second"; }
  /// Of all ranks' parts, on rank 0.
  Json layers_of(const std::vector<std::vector<LayerReport>>& own) const;
  /// Resident bytes of each, by rank.
  Json memory_of_processes() const;

  /// Losses are part of a checkpoint, times are not.
  struct Sums {
    double loss = 0, cost = 0, norm = 0;
    int64_t updates = 0, losses = 0;  // all of them, and those in which something was scored
    Score score;
    double seconds = 0, exchange = 0;
    int64_t timed = 0, steps = 0;
  };

  const Problem& problem_;
  Group& group_;
  std::optional<Metrics> metrics_;
  Sums sums_;
  Json validations_ = Json::array();
  std::string note_, valid_note_, pace_, newest_validation_;
};

}  // namespace lapse
