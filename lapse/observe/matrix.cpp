#include "lapse/observe/matrix.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/memory/row_kind.h"
#include "lapse/ops/aten.h"
#include "lapse/train/batch.h"

namespace lapse {
namespace {

using at::Tensor;

/// [B, 1, K, K]: whether the row is in memory at the query, from when each row ended.
Tensor kept(const LayerReport& report, int64_t B, int64_t K) {
  const Tensor token = is_token(report.kind);  // not what a sequence starts from, nor an average
  const Tensor time = report.time.masked_select(token).view({B, 1, K}), until = report.until.masked_select(token);
  const Tensor query = at::arange(K, time.options()).view({1, K, 1});
  return at::logical_and(time <= query, query < until.view({B, 1, K})).unsqueeze(1);
}

Tensor matrix_of(const LayerReport& report, const std::string& what, int64_t B, int64_t K) {
  if (what == "kept") return kept(report, B, K);
  const auto found = report.pairs.find(what == "attention" ? "weights" : what);
  if (found == report.pairs.end()) {
    std::vector<std::string> told = {"attention", "kept"};
    for (const auto& pair : report.pairs) told.push_back(pair.first);
    fail(fmt::format("the method has no matrix '{}' of queries and rows{}; it has {}", what, did_you_mean(what, told),
                     fmt::join(told, ", ")));
  }
  return found->second;
}

/// Sums over documents, of which each has its own length.
class Sums {
 public:
  /// `tokens` [B]: of each sample before its padding; undefined: all.
  void add(const std::vector<LayerReport>& reports, const MatrixOptions& options, int64_t B, int64_t K,
           const Tensor& tokens) {
    const Tensor query = at::arange(K, at::kLong);
    const Tensor read = tokens.defined() ? query < tokens.to(at::kCPU).unsqueeze(1) : at::ones({B, K}, at::kBool);
    grow(counts_, {K}).add_(read.sum(0));
    const Tensor counted = at::logical_and(read.unsqueeze(2), query <= query.unsqueeze(1)).unsqueeze(1);
    sums_.resize(reports.size());
    for (size_t l = 0; l < reports.size(); ++l) {
      if (options.layer >= 0 && static_cast<int64_t>(l) != options.layer) continue;
      const Tensor values = matrix_of(reports[l], options.what, B, K).to(at::kCPU, at::kFloat);
      const Tensor sum = at::where(counted, values, 0).sum(0);
      grow(sums_[l], {sum.size(0), K, K}).add_(sum);
    }
  }

  void finish(MatrixRecord& record) {
    const Tensor counts = counts_.clamp_min(1).to(at::kDouble).view({1, -1, 1});
    for (size_t l = 0; l < sums_.size(); ++l) {
      if (!sums_[l].defined()) continue;
      if (!std::isfinite(sums_[l].sum().item<double>()))
        fail(
            fmt::format("layer {} has numbers that are not finite: the model's weights are too large, as after a run "
                        "that diverged",
                        l));
      record.layers.push_back({static_cast<int64_t>(l), sums_[l] / counts});
    }
    const auto* first = counts_.const_data_ptr<int64_t>();
    record.counts.assign(first, first + counts_.numel());
  }

 private:
  /// The part of `all` that has this shape, after making it large enough.
  static Tensor grow(Tensor& all, at::IntArrayRef shape) {
    const bool whole = shape.size() == 1;
    if (!all.defined()) all = at::zeros(shape, whole ? at::kLong : at::kDouble);
    const int64_t more = shape.back() - all.size(-1);
    if (more > 0) all = whole ? at::constant_pad_nd(all, {0, more}) : at::constant_pad_nd(all, {0, more, 0, more});
    return whole ? all.narrow(0, 0, shape[0]) : all.narrow(1, 0, shape[1]).narrow(2, 0, shape[2]);
  }

  Tensor counts_;             // [N]
  std::vector<Tensor> sums_;  // [layer]: [H, N, N]
};

}  // namespace

MatrixRecord record_matrix(Transformer& model, EvaluationBlocks& blocks, const MatrixOptions& options) {
  at::NoGradGuard no_grad;
  for (const auto& layer : model.layers())
    if (layer.attention().method().one_by_one())
      fail("the method decides token by token what it forgets, and a matrix is made of whole blocks");
  MatrixRecord record;
  Sums sums;
  const Pairs pairs = options.what == "kept" ? Pairs::none : options.what == "attention" ? Pairs::weights : Pairs::told;
  TokenBlock block;
  while (record.documents < options.documents && !record.stopped && blocks.next(block)) {
    block = block.part(0, std::min(block.batch, options.documents - record.documents));
    const Batch batch = Batch(block).to(model.device());
    ModelMemory memory = model.begin(block.batch, Stored::projections);
    const Tensor none = at::empty({0}, batch.input.options());  // logits are not needed
    const auto y =
        model.forward(batch.input, memory, {.observe = true, .pairs = pairs, .lengths = batch.lengths, .places = none});
    sums.add(y.reports, options, block.batch, block.length, batch.lengths);
    if (options.documents == 1) {
      const int64_t n = block.lengths.empty() ? block.length : block.lengths[0];
      record.tokens.assign(block.input.begin(), block.input.begin() + n);
    }
    record.documents += block.batch;
    if (options.progress) options.progress(record.documents);
    record.stopped = interrupted();
  }
  if (record.documents == 0) fail("there is nothing to read");
  sums.finish(record);
  return record;
}

std::string matrix_json(const MatrixRecord& record, const MatrixOptions& options, const Json& read,
                        const std::vector<std::string>& texts) {
  Json head = {{"matrix", options.what}};  // the first key: `lapse plot` knows the file by it
  head.update(read);
  head["documents"] = record.documents, head["counts"] = record.counts, head["tokens"] = texts;
  std::string json = to_text(head);
  json.pop_back();
  json += ", \"layers\": [";
  for (size_t l = 0; l < record.layers.size(); ++l) {
    const auto& [number, mean] = record.layers[l];
    json += fmt::format("{}\n{{\"layer\": {}, \"heads\": [", l > 0 ? "," : "", number);
    const Tensor values = mean.contiguous();
    const auto* next = values.const_data_ptr<double>();
    for (int64_t h = 0; h < mean.size(0); ++h) {
      json += h > 0 ? ",\n [" : "\n [";
      for (int64_t t = 0; t < mean.size(1); ++t, next += mean.size(2))
        json += fmt::format("{}[{:.4g}]", t > 0 ? ", " : "", fmt::join(next, next + t + 1, ", "));
      json += "]";
    }
    json += "]}";
  }
  return json + "]}\n";
}

}  // namespace lapse
