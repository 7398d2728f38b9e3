#include "lapse/forgetting/compressive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lapse/core/error.h"
#include "lapse/core/random.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

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

class Compressive : public Method {
 public:
  Compressive(const Settings& s, const ModelShape& shape) : s_(s), shape_(shape) {}

  bool pools() const override { return true; }

  // Query t needs the slot that begins at t - L, so that slots come c timesteps before the last of their members goes.
  PooledRows pool(const MemoryTable& table, const Tensor& start, int64_t length) const override {
    std::vector<int64_t> samples, times, rows, latest;  // of the slots that the block is the first to need
    for (int64_t b = 0; b < table.samples(); ++b) {
      const int64_t now = start.const_data_ptr<int64_t>()[b], row_now = table.last_row(b) + 1 - length;
      for (int64_t tau = slot_from(now - s_.max_span); tau < now + length - s_.max_span; tau += s_.rate) {
        const int64_t row = row_now - (now - tau);  // a sample's timesteps are consecutive
        if (row < table.first_row(b)) continue;
        samples.push_back(b), times.push_back(tau), rows.push_back(row);
        latest.push_back(std::max(row + s_.rate - 1, row_now));
      }
    }
    if (samples.empty()) return {};
    const Tensor hidden = table.column("hidden").detach(), sample = at::tensor(samples, at::kLong);
    const auto there = [&](const std::vector<int64_t>& x) { return sent(at::tensor(x, at::kLong), hidden.device()); };
    const Tensor tau = there(times), row = there(rows), complete = this->complete(table, tau, row, there(latest));
    const Tensor members = row.unsqueeze(1) + at::arange(s_.rate, row.options());
    const Tensor means = hidden.index_select(0, members.flatten()).view({-1, s_.rate, hidden.size(1)}).mean(1);
    // Whether a slot is complete a GPU is not asked: others get a time that no query reads, and soon leave the table.
    if (!hidden.device().is_cpu()) return {means, sample, at::where(complete, tau, tau - kSpareTime)};
    const Tensor chosen = at::nonzero(complete).squeeze(1);
    if (chosen.numel() == 0) return {};
    return {means.index_select(0, chosen), sample.index_select(0, chosen), tau.index_select(0, chosen)};
  }

  std::vector<int64_t> initial_slots() const override {
    std::vector<int64_t> times;
    for (int64_t j = s_.slots(); j > 0 && from_zeros(); --j) times.push_back(-s_.max_span - j * s_.rate);
    return times;
  }

  // A slot is read at ages L ... L + (C + 1) c - 1 of its first timestep.
  Tensor first(const RowView& rows) const override {
    return at::add(rows.time + shape_.min_age, is_kind(rows.kind, RowKind::pooled), s_.max_span - shape_.min_age);
  }
  Tensor until(const RowView& rows) const override {
    const int64_t more = (s_.slots() + 1) * s_.rate - 1;
    return at::add(rows.time + (s_.max_span + 1), is_kind(rows.kind, RowKind::pooled), more);
  }

  // Two calls, since of slots and of timesteps queries read other ages.
  Reading read(const Query& query, const Rows& rows) const override {
    const AttentionInputs all = ramp_inputs(query, rows);
    const Tensor pooled = is_kind(rows.table.kind(), RowKind::pooled);
    if (pooled.device().is_cpu() && !pooled.any().item<bool>())  // a GPU is not asked
      return {ramp_attention(all, ramp_options(query, shape_)).out};
    AttentionInputs newest = all;
    newest.until = all.until->masked_fill(pooled, -kNever);
    return {joined(ramp_attention(newest, ramp_options(query, shape_)), read_slots(query, all, pooled))};
  }

 private:
  bool from_zeros() const { return s_.initial_memory == "zeros"; }

  /// Where the first slot from `time` on begins. Slots begin at multiples of c from -L on, so that a query's window
  /// ends where a slot begins.
  int64_t slot_from(int64_t time) const {
    const int64_t c = s_.rate, after = (time + s_.max_span) % c;
    return time + (c - after) % c;
  }

  /// Whether the rows from `row` on are the timesteps tau ... tau + c - 1, of an episode that does not end before the
  /// row `latest`: [M] int64 each, for [M] bool. An episode's last timesteps, fewer than c, make no slot: no query of
  /// theirs would read it.
  Tensor complete(const MemoryTable& table, const Tensor& tau, const Tensor& row, const Tensor& latest) const {
    const Tensor& kind = table.kind();
    // How many episodes have begun up to each row. A stream that starts from rows of its own is one.
    const Tensor before = at::constant_pad_nd(kind, {1, 0}).narrow(0, 0, table.rows());
    const Tensor from_rows = is_kind(before, RowKind::start);
    const Tensor episode = at::logical_and(is_kind(kind, RowKind::first), at::logical_not(from_rows)).cumsum(0);
    const auto at_row = [&](const Tensor& x, int64_t more) { return x.index_select(0, row + more); };
    const Tensor present =
        at::logical_and(at_row(table.time(), 0) == tau, at_row(table.time(), s_.rate - 1) == tau + (s_.rate - 1));
    const Tensor timestep = at::logical_not(is_kind(at_row(kind, 0), RowKind::pooled));
    const Tensor lasts = episode.index_select(0, latest) == at_row(episode, 0);
    return at::logical_and(at::logical_and(present, timestep), lasts);
  }

  /// A slot's age is that of its first timestep: L ... L + (C + 1) c - 1.
  RampOutputs read_slots(const Query& query, const AttentionInputs& all, const Tensor& pooled) const {
    AttentionInputs slots = all;
    slots.until = all.until->masked_fill(at::logical_not(pooled), -kNever);
    RampOptions options = ramp_options(query, shape_);
    options.min_age = s_.max_span;
    if (query.position.defined()) options.position = positions_of_ages(query.position);
    const uint64_t of_layer = mix64(query.seed);  // the feed-forward's own
    if (query.dropout > 0) options.seed = at::full_like(*options.seed, static_cast<int64_t>(mix64(of_layer + 1)));
    return ramp_attention(slots, options);
  }

  /// `position`, [L + C + 1, D], has p of ages 1 ... L, then of slots by how many have begun after them: 0 ... C. Those
  /// of slots by age, [L - 1 + (C + 1) c, D]: row a - 1 is that of age a.
  Tensor positions_of_ages(const Tensor& position) const {
    const int64_t ranks = s_.slots() + 1, D = position.size(1);
    const Tensor slots = position.narrow(0, s_.max_span, ranks).unsqueeze(1).expand({ranks, s_.rate, D});
    return lapse::cat({position.new_zeros({s_.max_span - 1, D}), slots.reshape({ranks * s_.rate, D})});
  }

  /// One softmax over what both have read.
  static Tensor joined(const RampOutputs& newest, const RampOutputs& slots) {
    constexpr double kHidden = -1e30;  // finite: a query may see no slot at all
    const Tensor lse = slots.stats.narrow(3, 0, 1), sees = lse != -std::numeric_limits<double>::infinity();
    const Tensor share = at::sigmoid(at::where(sees, lse, kHidden) - newest.stats.narrow(3, 0, 1));
    const Tensor near = newest.out.to(share.scalar_type()), far = slots.out.to(share.scalar_type());
    return (near + (far - near) * at::where(sees, share, 0)).to(newest.out.scalar_type());
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

  void check_new(const ModelShape& shape) const override {
    // An average is taken without gradients, so its timesteps have to be older than the block that first reads it. The
    // newest begins L before a query and ends c - 1 later; if c divides the block, all end with a block.
    if (shape.block % s_.rate != 0 && s_.max_span < shape.block + s_.rate - 1)
      fail(
          fmt::format("compressive.max_span = {} is less than {}: where compressive.rate = {} does not divide "
                      "train.block = {}, that many timesteps keep averages out of the block that is being trained",
                      s_.max_span, shape.block + s_.rate - 1, s_.rate, shape.block));
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
