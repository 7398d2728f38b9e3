#include "lapse/memory/table.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lapse/memory/appended.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

int64_t row_bytes(const Tensor& x) {
  return x.size(0) == 0 ? 0 : x.numel() / x.size(0) * static_cast<int64_t>(x.element_size());
}

int64_t capacity(const Tensor& x) {
  const int64_t row = row_bytes(x);
  return row == 0 ? 0 : static_cast<int64_t>(x.storage().nbytes()) / row;
}

/// n uninitialised rows like those of `like`, in storage with slack for a quarter more.
Tensor with_slack(int64_t n, const Tensor& like) {
  auto shape = like.sizes().vec();
  shape[0] = n + n / 4 + 16;
  return at::empty(shape, like.options()).narrow(0, 0, n);
}

/// A copy of `rows` in storage with slack.
Tensor copy_with_slack(const Tensor& rows) {
  Tensor view = with_slack(rows.size(0), rows);
  view.copy_(rows);
  return view;
}

/// x with the rows of `block` [1, K, ...] behind its own, where its storage has slack for them. A stream does this for
/// every column of every layer at every token.
Tensor extended(Tensor x, const Tensor& block) {
  const int64_t n = x.size(0), more = block.size(1);
  c10::SmallVector<int64_t, 4> shape(x.sizes());
  shape[0] = n + more;
  x.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  if (!x.device().is_cpu()) {
    x.narrow(0, n, more).copy_(block[0]);
    return x;
  }
  const Tensor from = block.contiguous();
  const int64_t row = x.numel() / shape[0] * static_cast<int64_t>(x.element_size());
  std::memcpy(static_cast<char*>(x.mutable_data_ptr()) + n * row, from.const_data_ptr(), more * row);
  return x;
}

/// The rows of `values` with these numbers, with slack if asked for.
Tensor chosen(const Tensor& values, const Tensor& numbers, bool slack) {
  if (!slack || values.requires_grad()) return values.index_select(0, numbers);
  Tensor view = with_slack(numbers.size(0), values);
  at::index_select_out(view, values, 0, numbers);
  return view;
}

}  // namespace

MemoryTable::MemoryTable(int64_t samples) {
  TORCH_CHECK(samples >= 0, "a memory table of ", samples, " samples");
  offsets_.assign(samples + 1, 0);
}

Tensor MemoryTable::offsets() const {
  if (pinned_offsets_.defined()) return pinned_offsets_;
  Tensor copy = empty_rows({samples() + 1}, at::kLong);
  std::copy(offsets_.begin(), offsets_.end(), copy.mutable_data_ptr<int64_t>());
  return copy;
}

Tensor MemoryTable::sample() const {
  const at::Device device = rows() == 0 ? at::kCPU : time().device();
  const Tensor counts = sent(at::diff(offsets()), device);
  return at::repeat_interleave(at::arange(samples(), counts.options()), counts, 0, rows());
}

const Tensor& MemoryTable::column(const std::string& name) const {
  const auto found = columns_.find(name);
  TORCH_CHECK(found != columns_.end(), "the memory table has no column '", name, "'");
  return found->second;
}

/// Of one sample: whether `block` fits behind the rows of `old`.
bool MemoryTable::has_slack(const Tensor& old, const Tensor& block) const {
  const int64_t n = old.size(0);
  return samples() == 1 && !block.requires_grad() && !old.requires_grad() && slack_ && n > 0 &&
         capacity(old) >= n + block.size(1);
}

Tensor MemoryTable::grown(const Tensor& old, const Tensor& block) const {
  if (samples() != 1 || block.requires_grad() || old.requires_grad()) return appended(old, offsets_, block);
  if (!has_slack(old, block)) return copy_with_slack(lapse::cat({old, block[0]}));
  // variable_data: whoever holds `old` keeps its rows, and autograd must not see this write as a change of it.
  return extended(old.variable_data(), block);
}

// The table's columns, all of them and no others, with rows as the table has them behind `leading` dimensions.
void MemoryTable::check_rows(const Columns& more, int64_t leading) const {
  for (const auto& [name, values] : more) {
    const auto found = columns_.find(name);
    TORCH_CHECK(found != columns_.end() || rows() == 0, "column '", name, "' is new to a table that has rows");
    if (found == columns_.end()) continue;
    const Tensor& old = found->second;
    TORCH_CHECK(values.device() == old.device(), "column '", name, "' is on ", old.device(), ", got rows on ",
                values.device());
    TORCH_CHECK(values.scalar_type() == old.scalar_type() && values.sizes().slice(leading) == old.sizes().slice(1),
                "rows of column '", name, "' are ", old.scalar_type(), " ", old.sizes().slice(1), ", got ",
                values.scalar_type(), " ", values.sizes().slice(leading));
  }
  for (const auto& [name, values] : columns_)
    TORCH_CHECK(more.count(name), "column '", name, "' of the table is missing");
}

void MemoryTable::check(const Columns& block, int64_t K) const {
  // The columns of a stream's next token come in the table's order and fit; look closer only if they do not.
  auto own = columns_.begin();
  const auto fits = [&](const auto& column) {
    const auto& [name, old] = *own++;
    const at::IntArrayRef sizes = column.second.sizes();
    return name == column.first && old.scalar_type() == column.second.scalar_type() &&
           old.device() == column.second.device() && sizes.size() >= 2 && sizes[0] == samples() && sizes[1] == K &&
           sizes.slice(2) == old.sizes().slice(1);
  };
  if (block.size() == columns_.size() && std::all_of(block.begin(), block.end(), fits)) return;
  for (const auto& [name, values] : block)
    TORCH_CHECK(values.dim() >= 2 && values.size(0) == samples() && values.size(1) == K, "append: column '", name,
                "' must be [", samples(), ", ", K, ", ...], got ", values.sizes());
  check_rows(block, 2);
}

void MemoryTable::append(Columns block) {
  const auto time = block.find("time");
  TORCH_CHECK(time != block.end() && block.count("kind") && samples() > 0,
              "append needs the columns 'time' and 'kind', and at least one sample");
  const int64_t K = time->second.dim() > 1 ? time->second.size(1) : 0;
  TORCH_CHECK(time->second.dim() == 2 && time->second.scalar_type() == at::kLong && block["kind"].dim() == 2 &&
                  block["kind"].scalar_type() == at::kByte,
              "append: 'time' must be int64 and 'kind' uint8, both [B, K]");
  check(block, K);
  if (!held_.empty()) {
    const auto learns = [](const auto& column) { return column.second.requires_grad(); };
    if (std::none_of(block.begin(), block.end(), learns)) {
      fill(block, K);
      unsifted_ += samples() * K;
      return;
    }
    compact();
  }
  // What nobody else holds is extended itself, after everything that can fail for want of memory.
  std::vector<std::pair<Tensor*, Tensor*>> unshared;
  for (auto& [name, values] : block) {
    const auto found = columns_.find(name);
    if (found != columns_.end() && found->second.use_count() == 1 && has_slack(found->second, values)) {
      values = values.contiguous();
      unshared.emplace_back(&found->second, &values);
    } else {
      values = grown(found != columns_.end() ? found->second : values.flatten(0, 1).narrow(0, 0, 0).detach(), values);
    }
  }
  for (auto& [old, values] : unshared) *values = extended(std::move(*old), *values);
  columns_ = std::move(block);
  slack_.take();
  for (int64_t b = 0; b <= samples(); ++b) offsets_[b] += b * K;
  unsifted_ += samples() * K;
}

void MemoryTable::keep(const Tensor& mask) { keep(Sieve{this, mask}); }

void MemoryTable::keep(c10::ArrayRef<Sieve> all) {
  std::vector<Tensor> wanted, counts;
  for (const auto& [table, mask] : all) {
    TORCH_CHECK(mask.dim() == 1 && mask.size(0) == table->rows() && mask.scalar_type() == at::kBool,
                "keep: mask must be bool of ", table->rows(), " elements, got ", mask.scalar_type(), " ", mask.sizes());
    if (table->rows() == 0) continue;
    const bool spare = !table->held_.empty();
    wanted.push_back(spare ? at::logical_and(mask, table->kind() != static_cast<int64_t>(RowKind::spare)) : mask);
    counts.push_back(table->counted(wanted.back()));
  }
  if (wanted.empty()) return;
  const Tensor read = counts.size() == 1 ? counts[0].to(at::kCPU) : lapse::cat(counts).to(at::kCPU);
  const auto* before = read.const_data_ptr<int64_t>();
  auto mask = wanted.begin();
  for (const auto& sieve : all) {
    if (sieve.table->rows() == 0) continue;
    sieve.table->keep(*mask++, before);
    before += sieve.table->samples() + 1;
  }
}

Tensor MemoryTable::counted(const Tensor& wanted) const {
  if (!wanted.device().is_cpu())
    return at::constant_pad_nd(wanted.to(at::kLong).cumsum(0), {1, 0})
        .index_select(0, sent(offsets(), wanted.device()));
  const Tensor mask = wanted.contiguous(), before = empty_rows({samples() + 1}, at::kLong);
  const auto* keeps = mask.const_data_ptr<bool>();
  auto* sum = before.mutable_data_ptr<int64_t>();
  sum[0] = 0;
  for (int64_t b = 0; b < samples(); ++b)
    sum[b + 1] = sum[b] + std::count(keeps + offsets_[b], keeps + offsets_[b + 1], true);
  return before;
}

void MemoryTable::keep(const Tensor& wanted, const int64_t* before) {
  unsifted_ = 0;
  const int64_t left = before[samples()];
  if (left == (held_.empty() ? rows() : std::reduce(held_.begin(), held_.end()))) return;
  const Tensor kept = places_of(wanted, left);
  if (!held_.empty()) {
    std::vector<int64_t> held(samples());
    for (int64_t b = 0; b < samples(); ++b) held[b] = before[b + 1] - before[b];
    return lay_out(kept, std::move(held));
  }
  for (auto& [name, values] : columns_) values = chosen(values, kept, samples() == 1);
  slack_.take();
  std::copy_n(before, offsets_.size(), offsets_.begin());
}

void MemoryTable::replace(const std::string& name, const Tensor& values) {
  const Tensor& old = column(name);
  TORCH_CHECK(values.sizes() == old.sizes() && values.scalar_type() == old.scalar_type(), "replace: column '", name,
              "' is ", old.scalar_type(), " ", old.sizes(), ", got ", values.scalar_type(), " ", values.sizes());
  if (in_place_)
    columns_[name].copy_(values);
  else
    columns_[name] = samples() == 1 && slack_ && held_.empty() ? copy_with_slack(values.detach()) : values.detach();
}

void MemoryTable::insert(const Tensor& sample, const Columns& more) {
  const int64_t M = sample.size(0);
  if (M == 0) return;
  for (const auto& [name, values] : more)
    TORCH_CHECK(values.dim() >= 1 && values.size(0) == M, "insert: column '", name, "' must have ", M, " rows, got ",
                values.sizes());
  TORCH_CHECK(more.count("time") && more.count("kind"), "insert: column 'time' or 'kind' is missing");
  check_rows(more, 1);
  // Stable sorts, the least significant key first: by time, then by sample and whether the row is pooled.
  const auto all_of = [&](const char* name) {
    return rows() == 0 ? more.at(name) : lapse::cat({column(name), more.at(name)});
  };
  const Tensor there = sent(sample, more.at("time").device());
  const Tensor samples_of = rows() == 0 ? there : lapse::cat({this->sample(), there});
  const Tensor group = samples_of * 2 + at::logical_not(is_kind(all_of("kind"), RowKind::pooled));
  const Tensor by_time = at::argsort(all_of("time"), true, 0, false);
  const Tensor order = by_time.index_select(0, at::argsort(group.index_select(0, by_time), true, 0, false));
  Columns all;
  for (const auto& [name, values] : more) {
    const auto found = columns_.find(name);
    const Tensor both = found == columns_.end() ? values : lapse::cat({found->second, values});
    all[name] = both.index_select(0, order);
    if (samples() == 1) all[name] = copy_with_slack(all[name]);
  }
  const Tensor counts = counts_of(sample, samples());
  columns_ = std::move(all);
  slack_.take();
  for (int64_t b = 0, sum = 0; b < samples(); ++b) {
    const int64_t count = counts.const_data_ptr<int64_t>()[b];
    offsets_[b + 1] += sum += count;
    if (!held_.empty()) held_[b] += count;
  }
  if (!held_.empty()) find_places();
  unsifted_ += M;
}

void MemoryTable::reset(c10::ArrayRef<int64_t> samples) {
  for (const int64_t b : samples)
    TORCH_CHECK(b >= 0 && b < this->samples(), "reset: there is no sample ", b, " of ", this->samples());
  if (rows() == 0 || samples.empty()) return;
  if (!held_.empty()) {
    for (const int64_t b : samples) clear(b);
    find_places();
    return;
  }
  Tensor mask = at::ones({rows()}, time().options().dtype(at::kBool));
  for (const int64_t b : samples) mask.narrow(0, offsets_[b], rows_of(b)).fill_(false);
  keep(mask);
}

void MemoryTable::detach() {
  for (auto& [name, values] : columns_)
    if (values.requires_grad()) values = values.detach();
}

void MemoryTable::to(at::Device device) {
  for (auto& [name, values] : columns_) values = values.to(device);
  if (!held_.empty()) find_places();
}

int64_t MemoryTable::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, values] : columns_) sum += static_cast<int64_t>(values.storage().nbytes());
  return sum;
}

MemoryTable MemoryTable::restore(const Tensor& offsets, Columns columns, int64_t unsifted) {
  TORCH_CHECK(offsets.dim() == 1 && offsets.size(0) >= 1 && offsets.scalar_type() == at::kLong,
              "offsets must be int64 [B + 1]");
  MemoryTable table(offsets.size(0) - 1);
  const Tensor contiguous = offsets.to(at::kCPU).contiguous();
  std::copy_n(contiguous.const_data_ptr<int64_t>(), table.offsets_.size(), table.offsets_.begin());
  TORCH_CHECK(table.offsets_.front() == 0 && std::is_sorted(table.offsets_.begin(), table.offsets_.end()),
              "offsets must begin with 0 and not decrease");
  for (const auto& [name, values] : columns)
    TORCH_CHECK(values.dim() >= 1 && values.size(0) == table.rows(), "column '", name, "' must have ", table.rows(),
                " rows");
  for (const auto& [name, type] : {std::pair{"time", at::kLong}, {"kind", at::kByte}}) {
    const auto found = columns.find(name);
    TORCH_CHECK(table.rows() == 0 || found != columns.end(), "column '", name, "' is missing");
    TORCH_CHECK(found == columns.end() || (found->second.dim() == 1 && found->second.scalar_type() == type), "column '",
                name, "' must be ", type, " [N]");
  }
  table.columns_ = std::move(columns);
  if (table.rows() > 0) {
    const Tensor spare = is_kind(table.kind(), RowKind::spare);
    if (spare.any().item<bool>()) table.keep(at::logical_not(spare));
  }
  table.unsifted_ = unsifted;
  return table;
}

}  // namespace lapse
