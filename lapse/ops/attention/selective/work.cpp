#include "lapse/ops/attention/selective/work.h"

#include <algorithm>

#include "lapse/ops/aten.h"

namespace lapse {
namespace {

CoreOptions of_form(const SelectiveOptions& o) {
  CoreOptions form;
  form.min_age = 0, form.max_age = o.max_age;
  return form;
}

template <class T>
std::optional<TiledCall<T>> form_of(const AttentionInputs& x, const SelectiveOptions& o, const CoreOptions& form) {
  if (!o.select_q) return std::nullopt;
  const at::Tensor k = o.select_k->unsqueeze(1);
  return std::optional<TiledCall<T>>(
      std::in_place, AttentionInputs{o.select_q->unsqueeze(2), k, k, x.offsets, x.start, x.time, x.until}, form);
}

}  // namespace

template <class T>
SelectiveCall<T>::SelectiveCall(const AttentionInputs& x, const SelectiveOptions& o)
    : options(o),
      heads_options_(core_options(o)),
      form_options_(of_form(o)),
      heads(x, heads_options_),
      form(form_of<T>(x, o, form_options_)),
      unit(heads.unit) {
  if (o.masking) masking_ = o.masking->to(at::kFloat).contiguous();
  const at::Tensor first = o.first && !o.mask_first ? o.first->contiguous() : at::Tensor();
  constexpr int32_t kNever = 1 << 30;
  for (const PlannedRows& rows : heads.plan.rows) {
    std::vector<int32_t> open = rows.first;
    for (size_t i = 0; i < open.size(); ++i) {
      if (rows.index[i] < 0) continue;
      if (!o.mask_self) ++open[i];
      if (first.defined() && first.const_data_ptr<bool>()[rows.index[i]]) open[i] = kNever;
    }
    open_.push_back(std::move(open));
  }
}

template <class T>
std::pair<int64_t, int64_t> SelectiveCall<T>::blocks(int64_t sample, int64_t begin, int64_t end) const {
  const PlannedRows& r = rows(sample);
  const int64_t first = *std::min_element(r.first.begin() + begin, r.first.begin() + end);
  const int64_t last = *std::max_element(r.last.begin() + begin, r.last.begin() + end);
  return {std::max<int64_t>(first, 0) / heads.queries, last / heads.queries + 1};
}

template <class T>
void SelectiveCall<T>::masking_before(int64_t sample, int64_t begin, int64_t end, float* to) const {
  const float* masking = masking_.defined() ? masking_.const_data_ptr<float>() : nullptr;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = rows(sample).index[i];
    to[i - begin] = masking == nullptr || row < 0 ? 0 : masking[row] * unit;
  }
}

template <class T>
SelectiveTile SelectiveCall<T>::tile(const ScoreTile& scores, int64_t sample, int64_t begin) const {
  SelectiveTile tile{.scores = scores,
                     .open = open_[sample].data() + begin,
                     .gated = scores.masked,
                     .factor = form ? unit / form->unit : 1,
                     .cap = static_cast<float>(options.cap) * unit,
                     .relu = options.relu,
                     .shift = options.shift};
  for (int i = 0; i < scores.rows; ++i) tile.gated = tile.gated || tile.open[i] > scores.first_query;
  return tile;
}

template class SelectiveCall<float>;
template class SelectiveCall<at::BFloat16>;

}  // namespace lapse
