// What a learner learns from, batch after batch, without end.
#pragma once

#include "lapse/core/json.h"
#include "lapse/train/learner.h"

namespace lapse {

class Feed {
 public:
  virtual ~Feed() = default;
  /// One update of the learner, by the next batch.
  virtual Update update(Learner& learner, bool observe) = 0;

  /// Where the feed is, for a checkpoint: values of the key "streams" in its state, and tensors.
  virtual Json state() const = 0;
  virtual Columns tensors() const { return {}; }
  /// Goes on from there. Error if that is of another text, environment or shape.
  virtual void restore(const JsonObject& state, const Columns& tensors) = 0;
};

}  // namespace lapse
