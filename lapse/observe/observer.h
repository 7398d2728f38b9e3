// Who watches a model as it reads: the recorder of `lapse inspect` (recorder.h) and the stream of `lapse serve`
// (stream.h) are told of every token, or of every step of an agent, once it was read.
#pragma once

#include <vector>

#include "lapse/model/transformer.h"

namespace lapse {

/// A token that one stream has just read, or a step.
struct SeenToken {
  int32_t token;                            ///< -1: a step
  const std::vector<LayerReport>& reports;  ///< of this token alone, layer by layer
  const ModelMemory& memory;                ///< what it left
};

class Observer {
 public:
  virtual ~Observer() = default;

  /// What the observer wants reports to hold.
  virtual BlockOptions wants() const = 0;
  virtual void token(const SeenToken& seen) = 0;
};

}  // namespace lapse
