#include "lapse/train/learner.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace lapse {
namespace {

NamedTensors trained(NamedTensors parameters, const LearnerOptions& options) {
  if (options.trains) std::erase_if(parameters, [&](const auto& named) { return !options.trains(named.first); });
  return parameters;
}

}  // namespace

Learner::Learner(Transformer model, std::unique_ptr<Objective> objective, const LearnerOptions& options)
    : model_(std::move(model)),
      objective_(std::move(objective)),
      options_(options),
      optimiser_(options.optimiser, trained(model_.parameters(), options)),
      draws_(options.seed, "blocks") {
  restart();
}

void Learner::restart() {
  memory_.clear();
  for (int64_t p = 0; p < options_.parts; ++p)
    memory_.push_back(model_.begin(options_.batch / options_.parts, Stored::inputs));
}

Update Learner::update(const TokenBlock& block, bool observe) {
  if (block.restart) restart();
  Update update = this->update(Batch(block), observe);
  update.score.bytes = block.bytes;
  return update;
}

Update Learner::update(const Batch& batch, bool observe) {
  const int64_t parts = options_.parts, size = batch.input.size(0) / parts;
  const BlockOptions how{.observe = observe, .exact = true, .bfloat16 = options_.bfloat16};
  const BlockDraws draws = model_.draw(draws_);
  Update update;
  update.score.scored = (batch.target != kUnscored).sum().item<int64_t>();
  const double scored = static_cast<double>(update.score.scored) / static_cast<double>(parts);
  optimiser_.zero_gradients();
  for (int64_t p = 0; p < parts; ++p) {
    BlockDraws own = draws;
    own.seed = mix64(*draws.seed + p);  // dropout differs between parts, u and layer drop do not
    PartLoss part = objective_->read(model_, memory_[p], batch.part(p * size, size), scored, how, own);
    (part.value / parts).backward();
    update.loss += part.loss / static_cast<double>(parts), update.cost += part.cost / static_cast<double>(parts);
    update.score.nats += part.nats, update.score.right += part.right;
    if (observe) update.reports.push_back(std::move(part.reports));
  }
  update.gradient_norm = optimiser_.clip();
  if (!std::isfinite(update.loss) || !std::isfinite(update.gradient_norm)) return update;
  update.rate = learning_rate(options_.optimiser, ++updates_, options_.updates);
  optimiser_.step(update.rate);
  model_.after_update();
  return update;
}

}  // namespace lapse
