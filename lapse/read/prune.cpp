#include "lapse/read/prune.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "lapse/core/error.h"
#include "lapse/forgetting/budgets.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {

using at::Tensor;

int64_t PruneRound::total() const { return std::accumulate(budgets.begin(), budgets.end(), int64_t{0}); }

void set_budgets(Transformer& model, const std::vector<int64_t>& budgets) {
  for (size_t l = 0; l < model.layers().size(); ++l)
    set_budget(model.layers()[l].attention().method(), budgets.empty() ? 0 : budgets[l]);
}

void require_budgets(const Transformer& model) {
  if (model.reads_source()) fail("budgets are found for models that read one text, not for those with an encoder");
}

LayerwiseText::LayerwiseText(Transformer& model, EvaluationBlocks& blocks, int64_t max_blocks) : model_(model) {
  require_budgets(model);
  TokenBlock block;
  for (int64_t i = 0; (max_blocks == 0 || i < max_blocks) && blocks.next(block); ++i) {
    Batch batch = Batch(block).to(model.device());
    Padding padding(batch.lengths, block.length, model.device());
    blocks_.push_back({std::move(batch), block.restart, std::move(padding)});
  }
  if (blocks_.empty()) fail("there is no block of text to find budgets on");
  inputs_.resize(model.layers().size());
}

double LayerwiseText::loss(const std::vector<int64_t>& budgets) {
  at::NoGradGuard no_grad;
  const auto layers = static_cast<int64_t>(inputs_.size());
  // Layers before the first that changed still get what they got.
  int64_t first = 0;
  if (budgets_.size() == budgets.size())
    while (first < layers && budgets_[first] == budgets[first]) ++first;
  budgets_ = budgets;
  if (inputs_[0].empty()) {
    first = 0;
    Tensor clock;
    for (const auto& block : blocks_) {
      if (block.restart) clock = at::zeros({block.batch.input.size(0)}, block.batch.input.options());
      inputs_[0].push_back(block.padding.removed(model_.embed(block.batch.input, clock)));
      clock = clock + block.batch.input.size(1);
    }
  }
  std::vector<Tensor> outputs;
  for (int64_t l = std::min(first, layers - 1); l < layers; ++l) {
    set_budget(model_.layers()[l].attention().method(), budgets[l]);
    outputs = run_layer(l, inputs_[l]);
    if (l + 1 < layers) inputs_[l + 1] = outputs;
  }
  return nats(outputs);
}

double LayerwiseText::loss_with(int64_t layer, int64_t budget) {
  at::NoGradGuard no_grad;
  set_budget(model_.layers()[layer].attention().method(), budget);
  std::vector<Tensor> h = run_layer(layer, inputs_[layer]);
  set_budget(model_.layers()[layer].attention().method(), budgets_[layer]);
  for (int64_t l = layer + 1; l < static_cast<int64_t>(inputs_.size()); ++l) h = run_layer(l, h);
  return nats(h);
}

std::vector<Tensor> LayerwiseText::run_layer(int64_t layer, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  MemoryTable table;
  Tensor clock;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& [batch, restart, padding] = blocks_[i];
    const int64_t streams = batch.input.size(0), K = batch.input.size(1);
    if (restart) {
      table = model_.begin_layer(layer, streams, Stored::projections);
      clock = at::zeros({streams}, inputs[i].options().dtype(at::kLong));
    }
    const BlockTimes times(clock, K, {});
    BlockOptions options;
    if (batch.lengths.defined()) options.lengths = sent(batch.lengths, model_.device());
    LayerPass pass{times, options, model_.ages(), Stored::projections, table};
    pass.padding = padding;
    outputs.push_back(model_.layers()[layer](inputs[i], pass));
    if (pass.kept.defined()) table.keep(pass.kept);
    clock = clock + K;
  }
  return outputs;
}

double LayerwiseText::nats(const std::vector<Tensor>& outputs) const {
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& [batch, restart, padding] = blocks_[i];
    const Likelihood found = model_.likelihood(padding.restored(outputs[i]), batch.target);
    sum += found.nats.item<double>();
    count += found.scored;
  }
  return sum / static_cast<double>(count);
}

std::vector<PruneRound> search_budgets(LayerwiseText& text, int64_t layers, const PruneOptions& options,
                                       std::vector<PruneRound> curve) {
  if (curve.empty()) curve.push_back({std::vector<int64_t>(layers, options.context), 0});
  curve.back().nats = text.loss(curve.back().budgets);
  // A curve is of use also where no budgets reach the threshold.
  const double limit = std::max(options.threshold, curve.front().nats) + options.margin;
  while (curve.back().nats <= limit) {
    const std::vector<int64_t>& budgets = curve.back().budgets;
    int64_t best = -1;
    double least = std::numeric_limits<double>::infinity();
    for (int64_t l = 0; l < layers; ++l) {
      if (budgets[l] - options.step < options.step) continue;
      const double nats = text.loss_with(l, budgets[l] - options.step);
      if (nats < least) least = nats, best = l;
    }
    if (best < 0) break;
    PruneRound next = curve.back();
    next.budgets[best] -= options.step;
    next.nats = text.loss(next.budgets);
    curve.push_back(next);
    if (options.after_round) options.after_round(curve);
  }
  return curve;
}

const PruneRound& chosen_round(const std::vector<PruneRound>& curve, double threshold) {
  for (size_t i = curve.size(); i > 0; --i)
    if (curve[i - 1].nats <= threshold) return curve[i - 1];
  return curve.front();
}

}  // namespace lapse
