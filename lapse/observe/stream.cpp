#include "lapse/observe/stream.h"

#include <algorithm>
#include <cmath>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// What it is on the CPU, packed and of this type; without asking libtorch's dispatcher, where it is so already.
Tensor plain(const Tensor& x, at::ScalarType type) {
  return x.is_cpu() && x.scalar_type() == type && x.is_contiguous() ? x : x.detach().to(at::kCPU, type).contiguous();
}

bool stands_for_token(uint8_t kind) {
  return kind == static_cast<uint8_t>(RowKind::token) || kind == static_cast<uint8_t>(RowKind::first);
}

void note(std::array<Raise, 3>& raised, Raise one) {
  for (auto& known : raised)
    if (one.amount > known.amount) std::swap(one, known);
}

}  // namespace

/// The columns of a report as plain numbers.
struct Stream::Numbers {
  explicit Numbers(const SeenRows& seen)
      : time_(plain(seen.time, at::kLong)),
        kind_(plain(seen.kind, at::kByte)),
        first_(plain(seen.first, at::kLong)),
        until_(plain(seen.until, at::kLong)),
        cut_(seen.cut.defined() ? plain(seen.cut, at::kBool) : Tensor()) {
    for (const auto& column : seen.told) told_.push_back(plain(column.second, at::kFloat));
    rows = time_.numel();
    time = time_.const_data_ptr<int64_t>(), kind = kind_.const_data_ptr<uint8_t>();
    first = first_.const_data_ptr<int64_t>(), until = until_.const_data_ptr<int64_t>();
    cut = cut_.defined() ? cut_.const_data_ptr<bool>() : nullptr;
    for (const auto& values : told_) told.push_back(values.const_data_ptr<float>());
  }

  /// How many the query at this time could read.
  int64_t readable(int64_t now) const {
    int64_t count = 0;
    for (int64_t i = 0; i < rows; ++i) count += (first[i] <= now) & (now < until[i]);
    return count;
  }

  /// How many rows from i on are the `known` ones, in their order, and can be read by the next query too.
  int64_t staying(int64_t i, const int64_t* known, int64_t most, int64_t now) const {
    int64_t count = 0;
    for (most = std::min(most, rows - i); count < most; ++count, ++i)
      if (time[i] != known[count] || until[i] <= now + 1 || !stands_for_token(kind[i])) break;
    return count;
  }
  Gone why(int64_t i) const { return cut && cut[i] ? Gone::evicted : Gone::expired; }

  int64_t rows;
  const int64_t *time, *first, *until;
  const uint8_t* kind;
  const bool* cut;
  std::vector<const float*> told;

 private:
  Tensor time_, kind_, first_, until_, cut_;
  std::vector<Tensor> told_;
};

Stream::Stream(const Transformer& model) : layers_(model.layers().size()) {
  if (model.layers().empty()) return;
  for (const auto& column : model.layers()[0].attention().method().state({0}, at::TensorOptions(at::kFloat)))
    columns_.push_back(column.first);
}

void Stream::learn_names(const SeenRows& seen) {
  for (const auto& column : seen.told) {
    if (changing_ < 0 && std::ranges::count(columns_, column.first) > 0) changing_ = std::ssize(names_);
    names_.push_back(column.first);
  }
}

void Stream::token(const SeenToken& seen) {
  const int64_t now = seen.memory.clock.to(at::kCPU).const_data_ptr<int64_t>()[0] - 1;
  if (names_.empty() && !seen.reports.empty()) learn_names(seen.reports[0].rows);
  changes_.clear();
  for (size_t l = 0; l < layers_.size(); ++l) changes_.push_back(follow(layers_[l], seen.reports[l].rows, now));
}

std::vector<LiveRow> Stream::live(int64_t layer) const {
  std::vector<LiveRow> all;
  for (size_t i = 0; i < layers_[layer].time.size(); ++i) all.push_back(row(layers_[layer], i));
  return all;
}

std::optional<LiveRow> Stream::find(int64_t layer, int64_t time) const {
  const Live& live = layers_[layer];
  const auto found = std::ranges::lower_bound(live.time, time);
  if (found == live.time.end() || *found != time) return {};
  return row(live, found - live.time.begin());
}

LiveRow Stream::row(const Live& live, size_t i) const {
  const auto told = live.told.begin() + static_cast<int64_t>(i * names_.size());
  LiveRow one{live.time[i], {told, told + std::ssize(names_)}, {}};
  if (changing_ >= 0) one.raised = live.raised[i];
  return one;
}

/// Rows from ... end - 1 to an earlier place.
void Stream::shift(Live& live, size_t from, size_t end, size_t to) const {
  if (from == to) return;
  const auto move = [=](auto& column, size_t width) {
    const auto first = column.begin();
    std::copy(first + from * width, first + end * width, first + to * width);
  };
  move(live.time, 1), move(live.told, names_.size());
  if (changing_ >= 0) move(live.raised, 1);
}

void Stream::resize(Live& live, size_t rows) const {
  live.time.resize(rows), live.told.resize(rows * names_.size());
  if (changing_ >= 0) live.raised.resize(rows);
}

void Stream::tell(Live& live, size_t place, const Numbers& seen, int64_t i) const {
  for (size_t k = 0; k < names_.size(); ++k) live.told[place * names_.size() + k] = seen.told[k][i];
}

// Both lists go by ascending time: rows that were there, and rows that the query saw, of which the last is its own.
// Most rows stay as they are, and this is what every token costs: they are passed by, and moved up in runs.
LayerChange Stream::follow(Live& live, const SeenRows& rows, int64_t now) const {
  const Numbers seen(rows);
  LayerChange change{seen.readable(now), Told(names_.size(), NAN), {}};
  const size_t there = live.time.size();
  size_t old = 0, begin = 0, kept = 0;  // the next row that was there; where the present run began; rows before it
  const auto end = [&](int64_t last, Gone why) {
    change.ended.push_back({row(live, old), last, why});
    shift(live, begin, old, kept);
    kept += old - begin, begin = ++old;
  };
  int64_t own = -1;
  for (int64_t i = 0; i < seen.rows; ++i) {
    if (changing_ < 0) {
      const int64_t same = seen.staying(i, live.time.data() + old, static_cast<int64_t>(there - old), now);
      i += same, old += same;
      if (i == seen.rows) break;
    }
    if (!stands_for_token(seen.kind[i])) continue;
    while (old < there && live.time[old] < seen.time[i]) end(now - 1, Gone::begun);
    if (old == there || live.time[old] != seen.time[i]) {
      if (seen.time[i] == now) own = i;  // else it went before, and only its place is left
      continue;
    }
    if (changing_ >= 0) {
      note(live.raised[old], {now, seen.told[changing_][i] - live.told[old * names_.size() + changing_]});
      tell(live, old, seen, i);
    }
    if (seen.until[i] > now + 1)
      ++old;
    else
      end(std::min(seen.until[i] - 1, now), seen.why(i));
  }
  while (old < there) end(now - 1, Gone::begun);
  shift(live, begin, there, kept);
  resize(live, kept + there - begin);
  if (own >= 0) add(live, seen, own, now, change);
  return change;
}

/// The query's own row.
void Stream::add(Live& live, const Numbers& seen, int64_t i, int64_t now, LayerChange& change) const {
  const size_t place = live.time.size();
  resize(live, place + 1);
  live.time[place] = now;
  tell(live, place, seen, i);
  const LiveRow own = row(live, place);
  change.told = own.told;
  if (seen.until[i] > now + 1) return;
  change.ended.push_back({own, std::min(seen.until[i] - 1, now), seen.why(i)});
  resize(live, place);
}

}  // namespace lapse
