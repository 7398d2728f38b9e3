// What an update minimises.
#pragma once

#include <memory>

#include "lapse/data/source.h"
#include "lapse/model/transformer.h"
#include "lapse/train/batch.h"

namespace lapse {

/// Scalars by name.
using NamedSums = std::vector<std::pair<std::string, at::Tensor>>;

/// What an objective says of one part of a batch: scalars, which are read together with those of the other parts.
struct PartLoss {
  at::Tensor value;                  ///< to minimise, the methods' costs included, as if this part were the whole batch
  at::Tensor loss, cost;             ///< the two that it is the sum of
  NamedSums sums;                    ///< of what is scored: "nats" and "right" as Score has them, others as Score::more
  std::vector<LayerReport> reports;  ///< if BlockOptions::observe
};

/// What a part is of.
struct PartOf {
  double scored = 0;  ///< positions of such a part that are scored, on average over the batch
  double done = 0;    ///< finished updates of the run's: 0 ... 1
};

class Objective {
 public:
  virtual ~Objective() = default;
  /// Reads one of the equal parts of a batch forward, with the memory of its samples.
  virtual PartLoss read(Transformer& model, ModelMemory& memory, const Batch& part, const PartOf& of,
                        const BlockOptions& options, const BlockDraws& draws) const = 0;
};

/// The sum over a part's scored positions, divided by their average number, so that each token of a batch counts alike:
/// of texts.
std::unique_ptr<Objective> language_modelling();
/// The same, divided by (their average number + 1e-6): of tasks, where few positions or none ask for something.
std::unique_ptr<Objective> scored_task();

}  // namespace lapse
