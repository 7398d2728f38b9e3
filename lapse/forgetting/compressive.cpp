#include "lapse/forgetting/compressive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/dropout.h"

namespace lapse {
namespace {

using at::Tensor;

struct Settings {
  int64_t max_span = 512;  // L
  int64_t rate = 4;        // c
  int64_t size = 512;      // timesteps that the slots stand for
  std::string initial_memory = "empty";

  int64_t slots() const { return size / rate; }  // C
};

/// The slots of a table, RowKind::pooled, filled up to the sample with the most: [B, S]. A slot stands for c timesteps,
/// the first of which is tau.
struct Slots {
  Tensor row;     ///< in the table; 0 where there is none
  Tensor time;    ///< tau
  Tensor until;   ///< Rows::until; where there is no slot, so early that no query reads it
  int64_t count;  ///< S

  // By loops on the CPU: for a token's few slots each operator of libtorch's would take longer.
  explicit Slots(const Rows& rows) {
    const MemoryTable& table = rows.table;
    const int64_t B = table.samples();
    const Tensor kinds = table.kind().to(at::kCPU).contiguous();
    const auto* kind = kinds.const_data_ptr<uint8_t>();
    std::vector<int64_t> counts;  // a sample's slots are its first rows
    for (int64_t b = 0; b < B; ++b)
      counts.push_back(std::find_if(kind + table.first_row(b), kind + table.first_row(b + 1),
                                    [](uint8_t k) { return k != static_cast<uint8_t>(RowKind::pooled); }) -
                       (kind + table.first_row(b)));
    count = B > 0 ? *std::max_element(counts.begin(), counts.end()) : 0;
    if (count == 0) return;
    Tensor numbers = at::zeros({B, count}, at::kLong), absent = at::ones({B, count}, at::kBool);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t s = 0; s < counts[b]; ++s) {
        numbers.mutable_data_ptr<int64_t>()[b * count + s] = table.first_row(b) + s;
        absent.mutable_data_ptr<bool>()[b * count + s] = false;
      }
    row = numbers.to(table.kind().device());
    time = table.time().index_select(0, row.flatten()).view({B, count});
    until = rows.until.index_select(0, row.flatten()).view({B, count});
    if (B > 1) until = until.masked_fill(absent.to(row.device()), -kNever);
  }
};

class Compressive : public Method {
 public:
  Compressive(const Settings& s, const ModelShape& shape) : s_(s), shape_(shape) {}

  bool keeps_hidden() const override { return true; }

  // Query t needs the slot that begins at t - L, so that slots come c timesteps before the last of their members goes.
  PooledRows pool(const MemoryTable& table, const Tensor& start, int64_t length) const override {
    const auto on_cpu = [](const Tensor& x) { return x.to(at::kCPU).contiguous(); };
    const Tensor times = on_cpu(table.time()), kinds = on_cpu(table.kind()), starts = on_cpu(start);
    const auto* t = times.const_data_ptr<int64_t>();
    const auto* kind = kinds.const_data_ptr<uint8_t>();
    const auto is = [&](int64_t row, RowKind what) { return kind[row] == static_cast<uint8_t>(what); };
    std::vector<int64_t> sample, time, members, pooled;  // the last: which of the new rows are means
    for (int64_t b = 0; b < table.samples(); ++b) {
      const int64_t begin = table.first_row(b), end = table.first_row(b + 1);
      int64_t row = begin;
      while (row < end && is(row, RowKind::pooled)) ++row;
      if (row == end) continue;
      int64_t next = row > begin ? t[row - 1] + s_.rate : slot_from(t[row]);
      if (row == begin && is(row, RowKind::start))
        for (int64_t j = s_.slots(); j > 0; --j) sample.push_back(b), time.push_back(next - j * s_.rate);
      const int64_t now = starts.const_data_ptr<int64_t>()[b], last = now + length - 1 - s_.max_span;
      // Only a stream can start from rows of its own.
      const auto begins = [&](int64_t i) { return is(i, RowKind::first) && !is(i - 1, RowKind::start); };
      // No query reads what was before the episode of the first one, whose rows may still be there.
      for (int64_t i = row + 1; i < end && t[i] <= now; ++i)
        if (begins(i)) row = i, next = std::max(next, slot_from(t[i]));
      while (next <= last) {
        row = std::lower_bound(t + row, t + end, next) - t;
        // An episode's last timesteps, if they are fewer than c, make no slot: none of its queries would read that.
        int64_t other = row;
        if (t[row] == next)
          for (++other; other < row + s_.rate && !begins(other);) ++other;
        if (other < row + s_.rate) {
          next = slot_from(t[other]);
          continue;
        }
        for (int64_t i = 0; i < s_.rate; ++i) members.push_back(row + i);
        pooled.push_back(static_cast<int64_t>(sample.size()));
        sample.push_back(b), time.push_back(next);
        next += s_.rate;
      }
    }
    if (sample.empty()) return {};
    const Tensor old = table.column("hidden").detach();
    const auto on_device = [&](const std::vector<int64_t>& x) { return at::tensor(x, at::kLong).to(old.device()); };
    const Tensor means = old.index_select(0, on_device(members)).view({-1, s_.rate, old.size(1)}).mean(1);
    const Tensor hidden = at::zeros({static_cast<int64_t>(sample.size()), old.size(1)}, old.options());
    return {hidden.index_copy(0, on_device(pooled), means), on_device(sample), on_device(time)};
  }

  // A slot is read at ages L ... L + (C + 1) c - 1 of its first timestep.
  Tensor first(const RowView& rows) const override {
    return at::add(rows.time + shape_.min_age, is_kind(rows.kind, RowKind::pooled), s_.max_span - shape_.min_age);
  }
  Tensor until(const RowView& rows) const override {
    const int64_t more = (s_.slots() + 1) * s_.rate - 1;
    return at::add(rows.time + (s_.max_span + 1), is_kind(rows.kind, RowKind::pooled), more);
  }

  Reading read(const Query& query, const Rows& rows) const override {
    AttentionInputs inputs = ramp_inputs(query, rows);
    const Slots slots(rows);
    if (slots.count > 0) inputs.until = inputs.until->masked_fill(is_kind(rows.table.kind(), RowKind::pooled), -kNever);
    const auto newest = ramp_attention(inputs, ramp_options(query, shape_));
    if (slots.count == 0) return {newest.out};
    return {joined(query, rows, slots, newest)};
  }

 private:
  /// Where the first slot from `time` on begins. Slots begin at multiples of c from -L on, so that a query's window
  /// ends where a slot begins.
  int64_t slot_from(int64_t time) const {
    const int64_t c = s_.rate, after = (time + s_.max_span) % c;
    return time + (c - after) % c;
  }

  /// One softmax over the newest rows, which the operator has read, and the slots.
  Tensor joined(const Query& query, const Rows& rows, const Slots& slots, const RampOutputs& newest) const {
    const int64_t B = query.q.size(0), K = query.q.size(1), H = shape_.heads, D = shape_.head_dim, S = slots.count;
    const auto wide = newest.stats.scalar_type();  // sums are in float32, and there are few slots
    const auto at_slots = [&](const Tensor& x) {   // [B, H, S, D]
      return x.index_select(0, slots.row.flatten()).view({B, S, H, D}).transpose(1, 2).to(wide);
    };
    const Tensor q = query.q.transpose(1, 2).to(wide);
    Tensor logits = at::matmul(q, at_slots(rows.key).transpose(2, 3));
    // How many slots have begun after this one when a query reads it: 0 ... C.
    const Tensor now = (query.start.unsqueeze(1) + at::arange(K, query.start.options())).unsqueeze(2);
    const Tensor since = at::floor_divide(now - slots.time.unsqueeze(1) - s_.max_span, s_.rate);
    const Tensor visible = at::logical_and(since >= 0, now < slots.until.unsqueeze(1)).unsqueeze(1);  // [B, 1, K, S]
    if (query.position.defined()) {
      const Tensor by_rank = at::matmul(q, query.position.narrow(0, s_.max_span, s_.slots() + 1).to(wide).t());
      const Tensor rank = since.clamp(0, s_.slots()).unsqueeze(1).expand({B, H, K, S});
      logits = logits + by_rank.gather(3, rank);
    }
    constexpr double kHidden = -1e30;  // finite: a query may see no slot at all
    if (shape_.scaled) logits = logits / std::sqrt(static_cast<double>(D));
    if (query.age_bias.defined()) {
      const Tensor age = (now - slots.time.unsqueeze(1)).clamp(0, query.age_bias.size(1) - 1);
      const Tensor bias = at::embedding(query.age_bias.t(), age);  // whose gradient is the same at every run on a GPU
      logits = logits + bias.permute({0, 3, 1, 2});
    }
    logits = logits.masked_fill(at::logical_not(visible), kHidden);
    const Tensor lse = at::logsumexp(logits, {3}, true);
    Tensor weights = at::exp(logits - lse);
    if (query.dropout > 0) {
      const uint64_t of_layer = mix64(static_cast<uint64_t>(query.seed.item<int64_t>()));  // the feed-forward's own
      const uint64_t seed = mix64(of_layer + 1);
      weights = dropped(weights, query.dropout, seed);
    }
    const Tensor out = at::matmul(weights, at_slots(rows.value)).transpose(1, 2);
    const Tensor share = at::sigmoid(lse.transpose(1, 2) - newest.stats.narrow(3, 0, 1));
    const Tensor sees = visible.any(3, true).transpose(1, 2);
    const Tensor near = newest.out.to(wide);
    return (near + (out - near) * at::where(sees, share, 0)).to(newest.out.scalar_type());
  }

  Settings s_;
  ModelShape shape_;
};

class CompressiveOptions : public MethodOptions {
 public:
  std::string name() const override { return "compressive"; }

  Fields fields() override {
    return {
        field("max_span", s_.max_span, "L: how many of the newest timesteps are kept as they are; at least a block")
            .in(1, 1 << 24)
            .unit("timesteps"),
        field("rate", s_.rate, "c: older timesteps are averaged, so many at a time").in(1, 1 << 20).unit("timesteps"),
        field("size", s_.size, "how many timesteps the averages stand for; a multiple of c")
            .in(1, 1 << 24)
            .unit("timesteps"),
        field("initial_memory", s_.initial_memory, "what a sequence starts from: nothing, or zero vectors everywhere")
            .one_of({"empty", "zeros"}),
    };
  }

  void check(const ModelShape& shape) const override {
    if (s_.size % s_.rate != 0)
      fail(fmt::format("compressive.size = {} is not a multiple of compressive.rate = {}", s_.size, s_.rate));
    if (s_.max_span < std::max(shape.block, s_.rate))
      fail(fmt::format(
          "compressive.max_span = {} is less than {}: it must hold a block of training and what is averaged",
          s_.max_span, std::max(shape.block, s_.rate)));
  }

  int64_t longest(const ModelShape&) const override { return s_.max_span + (s_.slots() + 1) * s_.rate - 1; }
  int64_t longest_single(const ModelShape&) const override { return s_.max_span; }
  // Ages 1 ... L of timesteps, then one for each rank of a slot.
  int64_t positions(const ModelShape&) const override { return s_.max_span + s_.slots() + 1; }
  int64_t initial_rows(const ModelShape&) const override { return s_.initial_memory == "zeros" ? s_.max_span : 0; }
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t, Random&) const override {
    return std::make_unique<Compressive>(s_, shape);
  }

 private:
  Settings s_;
};

}  // namespace

std::unique_ptr<MethodOptions> compressive_options() { return std::make_unique<CompressiveOptions>(); }

}  // namespace lapse
