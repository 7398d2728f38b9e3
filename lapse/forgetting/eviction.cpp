#include "lapse/forgetting/eviction.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lapse/ops/aten.h"

namespace lapse {

using at::Tensor;

namespace {

constexpr double kGone = -1e30;  // as a logit: weight 0 beside any other row

}  // namespace

Columns Eviction::state(at::IntArrayRef shape, const at::TensorOptions& real) const {
  if (!by_head_) return {{"score", at::zeros(shape, real)}};
  auto wide = shape.vec();
  wide.push_back(shape_.heads);
  return {{"score", at::zeros(wide, real)}, {"logit", at::zeros(wide, real)}};
}

Columns Eviction::tell(const Rows& rows) const {
  const Tensor& scores = rows.described.at("score");
  return {{"score", by_head_ ? scores.sum(1) : scores}};
}

Reading Eviction::read(const Query& query, const Rows& rows) const {
  RampOptions options = standard_options(query, shape_, max_age_);
  options.received = rows.stored == Stored::projections;
  if (options.received && by_head_) options.logit = rows.described.at("logit");
  const auto y = ramp_attention(ramp_inputs(query, rows), options);
  if (!options.received) return {y.out};
  Reading reading{y.out};
  reading.state["score"] = score(rows.described.at("score"), y.received);
  if (budget_ > 0) evict(rows, query.start, reading);
  return reading;
}

// Where tokens attend themselves the next one counts in the budget, and among the newest rows that are never dropped.
void Eviction::evict(const Rows& rows, const Tensor& now, Reading& reading) const {
  const int64_t own = shape_.min_age == 0 ? 1 : 0, room = budget_ - own;
  const int64_t newest = std::min(room, safe(budget_) - own), choosers = by_head_ ? shape_.heads : 1;
  const Tensor scores = reading.state["score"].to(at::kCPU, at::kDouble).contiguous(),
               start = now.to(at::kCPU).contiguous();
  const auto copy = [](const Tensor& x, at::ScalarType type) { return x.to(at::kCPU, type, false, true).contiguous(); };
  const Tensor until = copy(rows.until, at::kLong);
  const Tensor logit =
      by_head_ ? copy(rows.described.at("logit"), at::kDouble) : at::zeros({until.numel()}, at::kDouble);
  const auto* score = scores.const_data_ptr<double>();
  auto* ends = until.mutable_data_ptr<int64_t>();
  auto* gone = logit.mutable_data_ptr<double>();  // [N, choosers]: 0 or kGone
  std::vector<int64_t> held;                      // by one chooser: places in both
  for (int64_t b = 0; b < rows.table.samples(); ++b) {
    const int64_t next = start.const_data_ptr<int64_t>()[b] + 1, begin = rows.table.first_row(b),
                  end = rows.table.first_row(b + 1);
    for (int64_t c = 0; c < choosers; ++c) {
      held.clear();
      for (int64_t i = begin; i < end; ++i)
        if (const int64_t place = i * choosers + c; ends[i] > next && gone[place] == 0) held.push_back(place);
      const auto excess = static_cast<int64_t>(held.size()) - room;
      if (excess <= 0) continue;
      held.resize(std::max(excess, static_cast<int64_t>(held.size()) - newest));
      for (int64_t i = 0; i < excess; ++i) {  // the least score goes, of equals the oldest
        const auto least = std::ranges::min_element(held, {}, [&](int64_t place) { return score[place]; });
        gone[*least] = kGone;
        held.erase(least);
      }
    }
    for (int64_t i = begin; i < end; ++i)
      if (ends[i] > next &&
          std::all_of(gone + i * choosers, gone + (i + 1) * choosers, [](double x) { return x != 0; }))
        ends[i] = next;
  }
  reading.until = until.to(rows.until.device());
  if (by_head_) reading.state["logit"] = logit.to(rows.described.at("logit").options());
}

namespace {

class EvictionOptions : public PatternOptions {
 public:
  using Make = std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)>;
  EvictionOptions(std::string name, Chooses chooses, Make make)
      : name_(std::move(name)), who_(chooses == Chooses::head ? "head" : "layer"), make_(std::move(make)) {}

  std::string name() const override { return name_; }
  Fields fields() override {
    return {max_span_field(),
            field("budget", configured_,
                  fmt::format("rows that every {} holds outside training, the current one included", who_))
                .in(1, 1 << 24)
                .unit("rows")};
  }
  Fields reading_fields() override { return {budget_field(who_)}; }
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t) const override {
    return make_(shape, budget_or(configured_), max_span_);
  }

 private:
  std::string name_, who_;
  Make make_;
  int64_t configured_ = 128;
};

}  // namespace

std::unique_ptr<MethodOptions> eviction_options(
    const std::string& name, Chooses chooses,
    std::function<std::unique_ptr<Method>(const ModelShape&, int64_t, int64_t)> make) {
  return std::make_unique<EvictionOptions>(name, chooses, std::move(make));
}

}  // namespace lapse
