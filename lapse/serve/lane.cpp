#include "lapse/serve/lane.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/dense/layer_passes.h"

namespace lapse {

using at::Tensor;

Lane::Lane(std::shared_ptr<const Opened> opened)
    : opened_(std::move(opened)), state_{model().begin(1, Stored::projections), {}, Stream(model())} {}

Tensor Lane::one(int32_t token) const {
  return at::full({1, 1}, static_cast<int64_t>(token), state_.memory.clock.options());
}

double Lane::bits(int32_t token) const {
  if (!state_.logits.defined()) return std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = state_.logits.to(at::kCPU, at::kFloat).contiguous();
  const float* x = logits.const_data_ptr<float>();
  return (log_sum_exp(x, logits.numel()) - x[token]) / std::log(2);
}

void Lane::read(int32_t token) {
  const at::NoGradGuard no_grad;
  const auto y = model().forward(one(token), state_.memory, state_.stream.wants());
  state_.logits = reshaped(y.logits, {y.logits.size(2)});
  state_.stream.token({token, y.reports, state_.memory});
}

std::vector<std::vector<double>> Lane::reads(int32_t token, int64_t time) const {
  const at::NoGradGuard no_grad;
  ModelMemory memory = state_.memory;
  BlockOptions how{.rows = true, .pairs = Pairs::reads};
  return weights_of(model().forward(one(token), memory, how).reports, time);
}

std::vector<std::vector<double>> weights_of(const std::vector<LayerReport>& reports, int64_t time) {
  std::vector<std::vector<double>> all;
  for (const auto& report : reports) {
    const Tensor row = at::logical_and(report.rows.time == time, is_token(report.rows.kind)).nonzero().flatten();
    auto& of_heads = all.emplace_back();
    if (row.numel() == 0) continue;
    const Tensor weights = report.pairs.at("weights").flatten(0, 2).select(1, row[0].item<int64_t>());
    const Tensor wide = weights.to(at::kCPU, at::kDouble).contiguous();
    of_heads.assign(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel());
  }
  return all;
}

}  // namespace lapse
