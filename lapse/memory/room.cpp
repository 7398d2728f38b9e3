// Room in the memory table: spare rows behind each sample's own, which new rows take without a copy of the others.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lapse/memory/table.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {
namespace {

using at::Tensor;

// What the spare rows of a column of one number a row hold.
int64_t spare_value(const std::string& column) {
  return column == "time" ? kSpareTime : column == "kind" ? static_cast<int64_t>(RowKind::spare) : 0;
}

/// Makes the column's memory one that nothing else reads: other tables, or whoever took the tensor, keep what they see.
void own(Tensor& column) {
  if (column.use_count() > 1 || column.storage().use_count() > 1 || !column.is_contiguous())
    column = column.clone(at::MemoryFormat::Contiguous);
}

/// The numbers of each sample's first rows, `counts` of them: [M] int64 on the CPU.
Tensor first_rows(const std::vector<int64_t>& offsets, const std::vector<int64_t>& counts) {
  const Tensor all = at::empty({std::reduce(counts.begin(), counts.end())}, at::kLong);
  auto* to = all.mutable_data_ptr<int64_t>();
  for (size_t b = 0; b < counts.size(); ++b) {
    std::iota(to, to + counts[b], offsets[b]);
    to += counts[b];
  }
  return all;
}

}  // namespace

int64_t MemoryTable::room() const {
  if (held_.empty()) return 0;
  int64_t least = rows_of(0) - held_[0];
  for (int64_t b = 1; b < samples(); ++b) least = std::min(least, rows_of(b) - held_[b]);
  return least;
}

int64_t MemoryTable::last_row(int64_t sample) const {
  return held_.empty() ? offsets_[sample + 1] - 1 : offsets_[sample] + held_[sample] - 1;
}

void MemoryTable::reserve(int64_t more) {
  for (const auto& [name, values] : columns_)
    TORCH_CHECK(!values.requires_grad(), "reserve: column '", name, "' has gradients");
  if (samples() == 0 || (samples() == 1 && (rows() == 0 || time().device().is_cpu()))) return;
  growth_ = std::max(growth_, more);
  if (held_.empty())
    for (int64_t b = 0; b < samples(); ++b) held_.push_back(rows_of(b));
  if (rows() > 0 && room() < more) lay_out(first_rows(offsets_, held_), held_);
}

/// Makes the table anew of the rows with these numbers, ascending, `held` of them in each sample, with new spare rows.
void MemoryTable::lay_out(const Tensor& numbers, std::vector<int64_t> held) {
  const int64_t more = std::max(growth_, *std::max_element(held.begin(), held.end()) / 4);
  std::vector<int64_t> offsets = {0};
  for (const int64_t rows : held) offsets.push_back(offsets.back() + rows + more);
  const at::Device device = columns_.begin()->second.device();
  const Tensor places = sent(first_rows(offsets, held), device), rows = sent(numbers, device);
  const Tensor from = at::zeros({offsets.back()}, rows.options()).index_copy_(0, places, rows);
  const Tensor spare = at::ones({offsets.back()}, rows.options().dtype(at::kBool)).index_fill_(0, places, false);
  for (auto& [name, values] : columns_) {
    auto shape = values.sizes().vec();
    shape[0] = offsets.back();
    values = numbers.size(0) == 0 ? at::zeros(shape, values.options()) : values.index_select(0, from);
    if (values.dim() == 1) values = values.masked_fill(spare, spare_value(name));
  }
  offsets_ = std::move(offsets);
  held_ = std::move(held);
  find_places();
}

void MemoryTable::forget_places() { places_.reset(), pinned_offsets_.reset(); }

/// What the device knows of where rows are, anew after the host has changed it.
void MemoryTable::find_places() {
  forget_places();
  if (rows() == 0 || time().device().is_cpu()) return;
  Tensor next = at::empty({samples()}, at::kLong);
  for (int64_t b = 0; b < samples(); ++b) next.mutable_data_ptr<int64_t>()[b] = offsets_[b] + held_[b];
  places_ = sent(next, time().device());
  if (time().is_cuda()) pinned_offsets_ = offsets().pin_memory();  // memory that a graph pins itself is never released
}

/// `append` where there is room, or room to be made.
void MemoryTable::fill(const Columns& block, int64_t K) {
  if (rows() == 0) {
    columns_.clear();
    for (const auto& [name, values] : block) columns_[name] = values.flatten(0, 1).narrow(0, 0, 0).detach();
  }
  if (K == 0) return;
  if (room() < K) growth_ = std::max(growth_, K), lay_out(first_rows(offsets_, held_), held_);
  Tensor places = places_;
  if (places.defined() && K > 1) places = (places.unsqueeze(1) + at::arange(K, places.options())).flatten();
  for (auto& [name, values] : columns_) {
    if (!in_place_) own(values);
    const Tensor& more = block.at(name);
    if (values.device().is_cpu()) {
      const Tensor from = more.contiguous();
      const int64_t bytes = from.numel() / samples() * static_cast<int64_t>(from.element_size());  // of a sample
      const auto* source = static_cast<const char*>(from.const_data_ptr());
      auto* to = static_cast<char*>(values.mutable_data_ptr());
      for (int64_t b = 0; b < samples() && bytes > 0; ++b)
        std::memcpy(to + (offsets_[b] + held_[b]) * (bytes / K), source + b * bytes, bytes);
      continue;
    }
    values.index_copy_(0, places, more.flatten(0, 1));
  }
  places.reset();
  if (places_.defined()) {
    if (!in_place_) own(places_);
    places_.add_(K);
  }
  for (auto& held : held_) held += K;
}

/// Makes the sample's rows spare.
void MemoryTable::clear(int64_t sample) {
  for (auto& [name, values] : columns_) {
    if (values.dim() > 1) continue;
    own(values);
    values.narrow(0, offsets_[sample], held_[sample]).fill_(spare_value(name));
  }
  held_[sample] = 0;
}

/// Leaves the spare rows out.
void MemoryTable::compact() {
  if (rows() > 0) {
    const Tensor numbers = sent(first_rows(offsets_, held_), time().device());
    for (auto& [name, values] : columns_) values = values.index_select(0, numbers);
  }
  for (int64_t b = 0; b < samples(); ++b) offsets_[b + 1] = offsets_[b] + held_[b];
  held_.clear();
  growth_ = 0;
  forget_places();
}

std::vector<const void*> MemoryTable::addresses() const {
  const auto shared = [](const Tensor& x) { return x.use_count() > 1 || x.storage().use_count() > 1; };
  if (room() == 0 || !places_.defined() || shared(places_)) return {};
  std::vector<const void*> all = {places_.const_data_ptr()};
  if (pinned_offsets_.defined()) all.push_back(pinned_offsets_.const_data_ptr());
  for (const auto& [name, values] : columns_) {
    if (shared(values)) return {};
    all.push_back(values.const_data_ptr());
  }
  for (const int64_t row : offsets_) all.push_back(reinterpret_cast<const void*>(row));
  return all;
}

void MemoryTable::count_row(bool taken_back) {
  const int64_t more = taken_back ? -1 : 1;
  for (auto& held : held_) held += more;
  unsifted_ += more * samples();
}

}  // namespace lapse
