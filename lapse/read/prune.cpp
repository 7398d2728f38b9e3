#include "lapse/read/prune.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

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

namespace {

int64_t longest_of(const Batch& batch) {
  return batch.lengths.defined() ? batch.lengths.max().item<int64_t>() : batch.input.size(1);
}

/// The same documents, all of them read from empty memory, in the order of their lengths: short ones are together, and
/// no batch is longer than its longest.
std::vector<Batch> by_length(const std::vector<Batch>& batches) {
  struct Document {
    Tensor input, target;
    int64_t length;
  };
  std::vector<Document> documents;
  for (const Batch& batch : batches)
    for (int64_t b = 0; b < batch.input.size(0); ++b)
      documents.push_back({batch.input[b], batch.target[b], batch.lengths[b].item<int64_t>()});
  std::ranges::stable_sort(documents, {}, &Document::length);
  std::vector<Batch> sorted;
  for (size_t begin = 0, size = batches.front().input.size(0); begin < documents.size(); begin += size) {
    const std::span some(documents.begin() + begin, std::min(size, documents.size() - begin));
    const int64_t longest = some.back().length;
    const auto as_long = [&](const Tensor& x, int64_t length, int64_t padding) {
      return at::constant_pad_nd(x.narrow(0, 0, length), {0, longest - length}, padding).unsqueeze(0);
    };
    std::vector<Tensor> inputs, targets;
    std::vector<int64_t> lengths;
    for (const auto& [input, target, length] : some) {
      inputs.push_back(as_long(input, length, 0)), targets.push_back(as_long(target, length, kUnscored));
      lengths.push_back(length);
    }
    sorted.emplace_back(cat(inputs), cat(targets));
    sorted.back().lengths = at::tensor(lengths, at::kLong);
  }
  return sorted;
}

}  // namespace

LayerwiseText::LayerwiseText(Transformer& model, EvaluationBlocks& blocks, int64_t max_blocks) : model_(model) {
  require_budgets(model);
  std::vector<Batch> batches;
  std::vector<bool> restarts;
  TokenBlock block;
  for (int64_t i = 0; (max_blocks == 0 || i < max_blocks) && blocks.next(block); ++i)
    batches.emplace_back(block), restarts.push_back(block.restart);
  if (batches.empty()) fail("there is no block of text to find budgets on");
  const auto is_documents = [](const Batch& batch) { return batch.lengths.defined(); };
  if (std::ranges::all_of(batches, is_documents) && std::ranges::all_of(restarts, std::identity()))
    batches = by_length(batches), restarts.assign(batches.size(), true);
  const int64_t begin_rows = model.begin_layer(0, 1, Stored::projections).rows();
  for (size_t i = 0; i < batches.size(); ++i) {
    if (restarts[i] || passes_.empty()) passes_.push_back({i, i, begin_rows, 0});
    Pass& pass = passes_.back();
    pass.end = i + 1;
    pass.rows += longest_of(batches[i]);
    pass.scored += (batches[i].target != kUnscored).sum().item<int64_t>();
    Padding padding(batches[i].lengths, batches[i].input.size(1), model.device());
    blocks_.push_back({batches[i].to(model.device()), std::move(padding)});
  }
}

double LayerwiseText::loss(const std::vector<int64_t>& budgets) {
  set_budgets(model_, budgets);
  now_ = budgets == best_.budgets ? std::move(best_) : changed(std::move(now_), budgets);
  best_ = {};
  return now_.loss(passes_);
}

double LayerwiseText::loss_with(int64_t layer, int64_t budget) {
  std::vector<int64_t> budgets = now_.budgets;
  budgets.at(layer) = budget;
  Reading other = changed(now_, budgets);
  const double loss = other.loss(passes_);
  if (best_.budgets.empty() || loss < best_.loss(passes_)) best_ = std::move(other);
  return loss;
}

double LayerwiseText::Reading::loss(const std::vector<Pass>& passes) const {
  int64_t scored = 0;
  for (const Pass& pass : passes) scored += pass.scored;
  return std::accumulate(nats.begin(), nats.end(), 0.0) / static_cast<double>(scored);
}

LayerwiseText::Reading LayerwiseText::changed(Reading reading, const std::vector<int64_t>& budgets) {
  at::NoGradGuard no_grad;
  set_budgets(model_, budgets);
  const bool anew = reading.budgets.empty();
  if (anew)
    reading = {budgets, {budgets.size(), std::vector<Tensor>(blocks_.size())}, std::vector<double>(passes_.size())};
  for (size_t p = 0; p < passes_.size(); ++p) {
    const Pass& pass = passes_[p];
    // A budget of as many rows as there are is like any larger one.
    const auto differs = [&](int64_t a, int64_t b) { return std::min(a, pass.rows) != std::min(b, pass.rows); };
    size_t first = 0;
    if (anew)
      embed(pass, reading.inputs[0]);
    else
      while (first < budgets.size() && !differs(budgets[first], reading.budgets[first])) ++first;
    if (first < budgets.size()) reading.nats[p] = read(pass, first, reading.inputs);
  }
  reading.budgets = budgets;
  return reading;
}

void LayerwiseText::embed(const Pass& pass, std::vector<Tensor>& inputs) {
  Tensor clock;
  for (size_t i = pass.first; i < pass.end; ++i) {
    const Tensor& tokens = blocks_[i].batch.input;
    if (i == pass.first) clock = at::zeros({tokens.size(0)}, tokens.options());
    inputs[i] = blocks_[i].padding.removed(model_.embed(tokens, clock));
    clock = clock + tokens.size(1);
  }
}

/// Runs the layers from `first_layer` on. Puts what those above it read into `inputs`, and returns the pass's nats.
double LayerwiseText::read(const Pass& pass, size_t first_layer, std::vector<std::vector<Tensor>>& inputs) {
  std::vector<Tensor> outputs;
  for (size_t l = first_layer; l < inputs.size(); ++l) {
    outputs = run_layer(l, pass, inputs[l]);
    if (l + 1 < inputs.size()) std::ranges::copy(outputs, inputs[l + 1].begin() + pass.first);
  }
  double nats = 0;
  for (size_t i = pass.first; i < pass.end; ++i) {
    const Tensor hidden = blocks_[i].padding.restored(outputs[i - pass.first]);
    nats += model_.likelihood(hidden, blocks_[i].batch.target).nats.item<double>();
  }
  return nats;
}

/// One output for each block of the pass.
std::vector<Tensor> LayerwiseText::run_layer(size_t layer, const Pass& pass, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  MemoryTable table;
  Tensor clock;
  for (size_t i = pass.first; i < pass.end; ++i) {
    const auto& [batch, padding] = blocks_[i];
    const int64_t streams = batch.input.size(0), K = batch.input.size(1);
    if (i == pass.first) {
      table = model_.begin_layer(static_cast<int64_t>(layer), streams, Stored::projections);
      clock = at::zeros({streams}, inputs[i].options().dtype(at::kLong));
    }
    const BlockTimes times(clock, K, {});
    BlockOptions options;
    if (batch.lengths.defined()) options.lengths = sent(batch.lengths, model_.device());
    LayerPass reading{times, options, model_.ages(), Stored::projections, table};
    reading.padding = padding;
    outputs.push_back(model_.layers()[layer](inputs[i], reading));
    if (reading.kept.defined()) table.keep(reading.kept);
    clock = clock + K;
  }
  return outputs;
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
