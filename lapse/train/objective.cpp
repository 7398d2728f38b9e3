#include "lapse/train/objective.h"

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// Objectives that predict targets, and differ in what they divide the summed log-likelihood by.
class Prediction : public Objective {
 public:
  PartLoss read(Transformer& model, ModelMemory& memory, const Batch& part, const PartOf& of,
                const BlockOptions& options, const BlockDraws& draws) const override {
    BlockOptions how = options;
    how.target = part.target, how.answers = part.answers;
    how.lengths = part.lengths, how.begins = part.begins, how.source = part.source;
    auto y = model.forward(part.input, memory, how, draws);
    const Likelihood& all = y.likelihood;
    const Tensor loss = all.nats / divisor(of.scored);
    NamedSums sums = {{"nats", all.nats}};
    if (all.right.defined()) sums.emplace_back("right", all.right.sum());
    return {loss + y.cost, loss, y.cost, std::move(sums), std::move(y.reports)};
  }

 protected:
  virtual double divisor(double scored) const = 0;
};

class LanguageModelling : public Prediction {
  double divisor(double scored) const override { return scored > 0 ? scored : 1; }  // a block may ask nothing
};

class ScoredTask : public Prediction {
  double divisor(double scored) const override { return scored + 1e-6; }
};

}  // namespace

std::unique_ptr<Objective> language_modelling() { return std::make_unique<LanguageModelling>(); }
std::unique_ptr<Objective> scored_task() { return std::make_unique<ScoredTask>(); }

}  // namespace lapse
