#include "lapse/data/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// BOS stands for what came before; padding is BOS too, and is not scored.
TokenBlock padded(const Tokens& tokens, int32_t bos, const std::vector<size_t>& documents, int64_t longest) {
  TokenBlock out{.batch = std::ssize(documents), .restart = true};
  for (const size_t d : documents) {
    out.starts.push_back(tokens.documents()[d].begin);
    out.lengths.push_back(std::min(tokens.documents()[d].size(), longest));
  }
  out.length = std::ranges::max(out.lengths);
  out.input.assign(out.batch * out.length, bos);
  out.target.assign(out.batch * out.length, kUnscored);
  for (int64_t b = 0; b < out.batch; ++b)
    for (int64_t i = 0; i < out.lengths[b]; ++i) {
      const int64_t at = out.starts[b] + i;
      if (i > 0) out.input[b * out.length + i] = tokens[at - 1];
      out.target[b * out.length + i] = tokens[at];
      out.bytes += tokens.text_bytes(at);
    }
  return out;
}

}  // namespace

TrainingDocuments::TrainingDocuments(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length, Random random)
    : tokens_(tokens), bos_(bos), batch_(batch), length_(length), random_(std::move(random)) {
  draw_order();
}

void TrainingDocuments::draw_order() {
  drawn_at_ = random_.counter();
  order_.resize(tokens_.documents().size());
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
}

TokenBlock TrainingDocuments::next() {
  std::vector<size_t> documents;
  while (std::ssize(documents) < batch_) {
    if (position_ == std::ssize(order_)) draw_order(), position_ = 0, ++pass_;
    documents.push_back(order_[position_++]);
  }
  return padded(tokens_, bos_, documents, length_);
}

void TrainingDocuments::set_state(const State& state) {
  if (state.position < 0 || state.position > std::ssize(order_))
    fail(fmt::format("cannot resume after document {} of {}: another text", state.position, order_.size()));
  random_.set_counter(state.random_counter);
  draw_order();
  position_ = state.position, pass_ = state.pass;
}

EvaluationDocuments::EvaluationDocuments(const Tokens& tokens, int32_t bos, int64_t batch, int64_t length)
    : tokens_(tokens), bos_(bos), batch_(batch), length_(length) {}

bool EvaluationDocuments::next(TokenBlock& block) {
  const int64_t count = std::min(batch_, std::ssize(tokens_.documents()) - position_);
  if (count == 0) return false;
  std::vector<size_t> documents(count);
  std::iota(documents.begin(), documents.end(), position_);
  position_ += count;
  block = padded(tokens_, bos_, documents, length_);
  return true;
}

int64_t EvaluationDocuments::blocks() const { return (std::ssize(tokens_.documents()) + batch_ - 1) / batch_; }

}  // namespace lapse
