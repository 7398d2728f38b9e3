#include "lapse/forgetting/eviction.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

Columns Eviction::state(at::IntArrayRef shape, const at::TensorOptions& real) const {
  return {{"score", at::zeros(shape, real)}};
}

Reading Eviction::read(const Query& query, const Rows& rows) const {
  RampOptions options = standard_options(query, shape_, max_age_);
  options.received = rows.stored == Stored::projections;
  const auto y = ramp_attention(ramp_inputs(query, rows), options);
  if (!options.received) return {y.out};
  Reading reading{y.out};
  reading.state["score"] = score(rows.described.at("score"), y.received);
  if (budget_ > 0) reading.until = evict(rows, query.start, reading.state["score"]);
  return reading;
}

// Where tokens attend themselves the next one counts in the budget, and among the newest rows that are never dropped.
Tensor Eviction::evict(const Rows& rows, const Tensor& now, const Tensor& scores) const {
  const int64_t own = shape_.min_age == 0 ? 1 : 0;
  const int64_t room = budget_ - own;
  const int64_t newest = std::min(room, safe(budget_) - own);
  const Tensor wide = scores.to(at::kCPU, at::kDouble).contiguous(), start = now.to(at::kCPU).contiguous();
  const Tensor until = rows.until.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true);
  const double* score = wide.const_data_ptr<double>();
  int64_t* ends = until.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < rows.table.samples(); ++b) {
    const int64_t next = start.const_data_ptr<int64_t>()[b] + 1;
    std::vector<int64_t> held;
    for (int64_t i = rows.table.first_row(b); i < rows.table.first_row(b + 1); ++i)
      if (ends[i] > next) held.push_back(i);
    const auto excess = static_cast<int64_t>(held.size()) - room;
    if (excess <= 0) continue;
    held.resize(std::max(excess, static_cast<int64_t>(held.size()) - newest));
    // The least scores go; of equals the oldest.
    std::stable_sort(held.begin(), held.end(), [&](int64_t i, int64_t j) { return score[i] < score[j]; });
    for (int64_t i = 0; i < excess; ++i) ends[held[i]] = next;
  }
  return until.to(rows.until.device());
}

namespace {

class EvictionOptions : public PatternOptions {
 public:
  using Make = std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)>;
  EvictionOptions(std::string name, Make make) : name_(std::move(name)), make_(std::move(make)) {}

  std::string name() const override { return name_; }
  Fields fields() override {
    return {max_span_field(),
            field("budget", configured_, "rows that every layer holds outside training, the current one included")
                .in(1, 1 << 24)
                .unit("rows")};
  }
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t) const override {
    return make_(shape, budget_or(configured_), max_span_);
  }

 private:
  std::string name_;
  Make make_;
  int64_t configured_ = 128;
};

}  // namespace

std::unique_ptr<MethodOptions> eviction_options(
    const std::string& name, std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)> make) {
  return std::make_unique<EvictionOptions>(name, std::move(make));
}

}  // namespace lapse
