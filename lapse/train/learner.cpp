#include "lapse/train/learner.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

NamedTensors trained(NamedTensors parameters, const LearnerOptions& options) {
  if (options.trains) std::erase_if(parameters, [&](const auto& named) { return !options.trains(named.first); });
  return parameters;
}

/// What the numbers of each name add up to over the ranks, which have the same names.
void sum(Group& group, std::map<std::string, double>& named) {
  std::vector<double> numbers;
  for (const auto& [_, number] : named) numbers.push_back(number);
  group.sum(numbers);
  auto next = numbers.begin();
  for (auto& [_, number] : named) number = *next++;
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

/// Where reading ends with an error, some parts have read what others have not: then all memory is torn.
class TornByError {
 public:
  explicit TornByError(std::vector<ModelMemory>& memory) : memory_(memory), before_(std::uncaught_exceptions()) {}
  ~TornByError() {
    if (std::uncaught_exceptions() == before_) return;
    for (auto& part : memory_) part.torn = true;
  }

 private:
  std::vector<ModelMemory>& memory_;
  int before_;
};

}  // namespace

Learner::Learner(Transformer model, std::unique_ptr<Objective> objective, const LearnerOptions& options)
    : model_(std::move(model)),
      objective_(std::move(objective)),
      options_(options),
      optimiser_(options.optimiser, trained(model_.parameters(), options)),
      draws_(options.seed, "blocks") {
  const auto [batch, parts] = std::pair(options.batch, options.parts);
  if (batch < 1 || parts < 1 || batch % parts != 0)
    fail(fmt::format("a batch of {} samples cannot be read in {} equal parts", batch, parts));
  if (parts % options.group.size() != 0)
    fail(fmt::format("{} parts cannot be divided evenly among {} ranks", parts, options.group.size()));
  restart();
}

void Learner::restart() {
  memory_.clear();
  for (int64_t p = 0; p < options_.parts / options_.group.size(); ++p)
    memory_.push_back(model_.begin(options_.batch / options_.parts, Stored::inputs));
}

Update Learner::update(const TokenBlock& block, bool observe) {
  if (block.restart) restart();
  if (block.batch != options_.batch)
    fail(fmt::format("the block has {} samples, and LearnerOptions::batch is {}", block.batch, options_.batch));
  const auto [first, count] = share();
  Update update = this->update(Batch(block).part(first, count), observe);
  update.score.bytes = block.bytes;
  return update;
}

Update Learner::update(const Batch& given, bool observe) {
  if (given.input.size(0) != share().count)
    fail(fmt::format("the batch has {} samples, and this rank's share of LearnerOptions::batch is {}",
                     given.input.size(0), share().count));
  Group& group = options_.group;
  const int64_t all = options_.parts, parts = all / group.size(), size = given.input.size(0) / parts;
  const BlockOptions how{.observe = observe, .exact = true, .bfloat16 = options_.bfloat16};
  const BlockDraws draws = model_.draw(draws_);
  std::array<double, 2> counts = {
      given.lengths.defined() ? given.lengths.sum().item<double>() : given.input.size(0) * given.input.size(1),
      (given.target != kUnscored).sum().item<double>()};
  group.sum(counts);
  Update update;
  update.steps = std::llround(counts[0]), update.score.scored = std::llround(counts[1]);
  const Batch batch = given.to(model_.device());
  const PartOf of{counts[1] / static_cast<double>(all),
                  std::min(1., static_cast<double>(updates_) / static_cast<double>(options_.updates))};
  NamedSums sums;
  optimiser_.zero_gradients();
  const TornByError torn(memory_);
  for (int64_t p = 0; p < parts; ++p) {
    BlockDraws own = draws;
    own.seed = mix64(*draws.seed + group.rank() * parts + p);  // dropout differs between parts, u and layer drop do not
    PartLoss part = objective_->read(model_, memory_[p], batch.part(p * size, size), of, how, own);
    (part.value / all).backward();
    sums.insert(sums.end(), {{"loss", part.loss}, {"cost", part.cost}});
    sums.insert(sums.end(), part.sums.begin(), part.sums.end());
    if (observe) update.reports.push_back(std::move(part.reports));
  }
  const auto before = std::chrono::steady_clock::now();
  optimiser_.sum_gradients(group);
  update.exchange_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  sums.emplace_back("gradient_norm", optimiser_.gradient_norm());
  auto read = numbers(sums);
  const auto take = [&](const char* name) { return read.contains(name) ? read.extract(name).mapped() : 0; };
  update.gradient_norm = take("gradient_norm");  // of all ranks' gradients already
  sum(group, read);
  update.loss = take("loss") / static_cast<double>(all), update.cost = take("cost") / static_cast<double>(all);
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
