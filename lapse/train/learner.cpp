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

/// The numbers of all these scalars, in one read: on a device each read waits until everything before it is done.
std::vector<double> numbers(const std::vector<at::Tensor>& scalars) {
  std::vector<at::Tensor> wide;
  for (const auto& scalar : scalars) wide.push_back(scalar.detach().to(at::kDouble));
  const at::Tensor all = at::stack(wide).to(at::kCPU);
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
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

Update Learner::update(const Batch& given, bool observe) {
  const int64_t parts = options_.parts, size = given.input.size(0) / parts;
  const BlockOptions how{.observe = observe, .exact = true, .bfloat16 = options_.bfloat16};
  const BlockDraws draws = model_.draw(draws_);
  Update update;
  update.score.scored = (given.target != kUnscored).sum().item<int64_t>();
  const Batch batch = given.to(model_.device());
  const double scored = static_cast<double>(update.score.scored) / static_cast<double>(parts);
  std::vector<at::Tensor> figures;
  optimiser_.zero_gradients();
  for (int64_t p = 0; p < parts; ++p) {
    BlockDraws own = draws;
    own.seed = mix64(*draws.seed + p);  // dropout differs between parts, u and layer drop do not
    PartLoss part = objective_->read(model_, memory_[p], batch.part(p * size, size), scored, how, own);
    (part.value / parts).backward();
    figures.insert(figures.end(), {part.loss, part.cost, part.nats, part.right});
    if (observe) update.reports.push_back(std::move(part.reports));
  }
  figures.push_back(optimiser_.gradient_norm());
  const std::vector<double> read = numbers(figures);
  for (int64_t p = 0; p < parts; ++p) {
    update.loss += read[4 * p] / static_cast<double>(parts),
        update.cost += read[4 * p + 1] / static_cast<double>(parts);
    update.score.nats += read[4 * p + 2], update.score.right += static_cast<int64_t>(read[4 * p + 3]);
  }
  update.gradient_norm = read.back();
  optimiser_.clip(update.gradient_norm);
  if (!std::isfinite(update.loss) || !std::isfinite(update.gradient_norm)) return update;
  update.rate = learning_rate(options_.optimiser, ++updates_, options_.updates);
  optimiser_.step(update.rate);
  model_.after_update();
  return update;
}

}  // namespace lapse
