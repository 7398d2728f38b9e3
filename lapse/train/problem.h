// What a run is to solve: to predict a text or a task's sequences, or to act in an environment. The trainer knows no
// more of it than this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lapse/train/checkpoint.h"
#include "lapse/train/evaluate.h"
#include "lapse/train/feed.h"

namespace lapse {

class Problem {
 public:
  virtual ~Problem() = default;

  virtual const Vocabulary& vocabulary() const = 0;
  virtual std::string describe() const = 0;  ///< one line for the user
  virtual const char* unit() const = 0;      ///< what a timestep is: "token", "step"

  virtual std::unique_ptr<Objective> objective() const = 0;
  virtual std::unique_ptr<Feed> feed(Group& group) = 0;  ///< of what a rank of the group learns from

  virtual bool validates() const = 0;  ///< whether there is something to validate on
  /// Error, which says how to mend, if a validation could say nothing, or cannot be shared out in the group.
  virtual void require_validation(const Group& group) const = 0;
  /// Shared out in the group: every rank has the result of all.
  virtual EvaluationResult validate(Transformer& model, Group& group) const = 0;

  /// The main figure first. What the score does not tell is left out.
  virtual std::vector<Figure> figures(const Score& score) const = 0;
  /// Tags of those that a line of progress shows, where they are there; else it shows the main one.
  virtual std::vector<std::string> shown() const { return {}; }
};

/// The configuration's. Of a text with the vocabulary of the run to go on from (null: of none). Error if that run reads
/// something else. The configuration must outlive the problem.
std::unique_ptr<Problem> open_problem(const Config& config, const Checkpoint* from);

}  // namespace lapse
