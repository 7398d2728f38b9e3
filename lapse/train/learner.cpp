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

/// What scalars of each name add up to, in one read: on a device each read waits until everything before it is done.
std::map<std::string, double> numbers(const NamedSums& scalars) {
  std::vector<at::Tensor> wide;
  for (const auto& [name, scalar] : scalars) wide.push_back(scalar.detach().to(at::kDouble));
  const at::Tensor all = at::stack(wide).to(at::kCPU);
  std::map<std::string, double> sums;
  for (size_t i = 0; i < scalars.size(); ++i) sums[scalars[i].first] += all.const_data_ptr<double>()[i];
  return sums;
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
  update.steps =
      given.lengths.defined() ? given.lengths.sum().item<int64_t>() : given.input.size(0) * given.input.size(1);
  update.score.scored = (given.target != kUnscored).sum().item<int64_t>();
  const Batch batch = given.to(model_.device());
  const PartOf of{static_cast<double>(update.score.scored) / static_cast<double>(parts),
                  std::min(1., static_cast<double>(updates_) / static_cast<double>(options_.updates))};
  NamedSums sums;
  optimiser_.zero_gradients();
  for (int64_t p = 0; p < parts; ++p) {
    BlockDraws own = draws;
    own.seed = mix64(*draws.seed + p);  // dropout differs between parts, u and layer drop do not
    PartLoss part = objective_->read(model_, memory_[p], batch.part(p * size, size), of, how, own);
    (part.value / parts).backward();
    sums.insert(sums.end(), {{"loss", part.loss}, {"cost", part.cost}});
    sums.insert(sums.end(), part.sums.begin(), part.sums.end());
    if (observe) update.reports.push_back(std::move(part.reports));
  }
  sums.emplace_back("gradient_norm", optimiser_.gradient_norm());
  auto read = numbers(sums);
  const auto take = [&](const char* name) { return read.contains(name) ? read.extract(name).mapped() : 0; };
  update.loss = take("loss") / static_cast<double>(parts), update.cost = take("cost") / static_cast<double>(parts);
  update.gradient_norm = take("gradient_norm");
  update.score.nats = take("nats"), update.score.right = std::llround(take("right"));
  update.score.more = std::move(read);
  optimiser_.clip(update.gradient_norm);
  if (!std::isfinite(update.loss) || !std::isfinite(update.gradient_norm)) return update;
  update.rate = learning_rate(options_.optimiser, ++updates_, options_.updates);
  optimiser_.step(update.rate);
  model_.after_update();
  return update;
}

}  // namespace lapse
