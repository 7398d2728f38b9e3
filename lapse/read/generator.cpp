#include "lapse/read/generator.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/data/vocabulary.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"
#include "lapse/read/saved_streams.h"

namespace lapse {

using at::Tensor;

std::string space_after(const std::string& prompt, int32_t last, const Vocabulary& vocabulary) {
  if (prompt.empty() || prompt.back() == ' ' || last == vocabulary.bos()) return "";
  return vocabulary.decode(last).ends_with(' ') ? " " : "";
}

Generator::Generator(Transformer& model, const SamplingOptions& options, uint64_t seed)
    : model_(model),
      options_(options),
      random_(seed, "sampling"),
      memory_(model.begin(1, Stored::projections)),
      steps_(model) {}

void Generator::read_source(const std::vector<int32_t>& tokens) {
  source_ = sent(at::tensor(tokens, at::kLong), model_.device()).unsqueeze(0);
}

void Generator::feed(const std::vector<int32_t>& tokens) {
  at::NoGradGuard no_grad;
  if (tokens.size() == 1 && !source_.defined()) {
    logits_ = steps_(at::tensor(tokens, at::kLong), memory_)[0];
    ++seen_;
    return;
  }
  const Tensor all = sent(at::tensor(tokens, at::kLong), model_.device()).unsqueeze(0);
  const int64_t block = std::max<int64_t>(model_.shape().block, 1);
  model_.check(all, memory_, {.source = source_});  // of all blocks, before the first is read
  for (int64_t i = 0; i < all.size(1); i += block) {
    const auto y = model_.forward(all.narrow(1, i, std::min(block, all.size(1) - i)), memory_, {.source = source_});
    source_.reset();
    logits_ = y.logits[0][-1];
  }
  seen_ += all.size(1);
}

int32_t Generator::next() {
  if (seen_ == 0) fail("nothing to continue: give a prompt of at least one token");
  if (!logits_.defined()) fail("the model's window is full; nothing can follow the token drawn last");
  const auto token = static_cast<int32_t>(sample(logits_, options_, random_));
  const int64_t context = model_.context();
  if (context == 0 || seen_ < context)
    feed({token});
  else
    logits_.reset();
  return token;
}

void Generator::reset() {
  memory_ = model_.begin(1, Stored::projections);
  logits_.reset();
  seen_ = 0;
}

void Generator::save(const fs::path& file, const std::string& described) const {
  const auto number = [](int64_t n) { return at::full({1}, n, at::kLong); };
  save_streams(file,
               {memory_,
                logits_.defined() ? logits_.unsqueeze(0) : Tensor(),
                {{"seen", number(seen_)}, {"draws", number(static_cast<int64_t>(random_.counter()))}}},
               described);
}

void Generator::load(const fs::path& file, const std::string& described) {
  SavedStreams saved = load_streams(file, model_, described);
  const auto number = [&](const char* name) {
    const Tensor n = saved.more[name];
    if (!n.defined() || n.numel() != 1 || n.scalar_type() != at::kLong || n.item<int64_t>() < 0)
      fail(fmt::format("{}: '{}' is no number; was it saved by `lapse generate`?", file.string(), name));
    return n.item<int64_t>();
  };
  const int64_t seen = number("seen");
  if (saved.memory.clock.size(0) != 1) fail(fmt::format("{}: it has several streams", file.string()));
  random_.set_counter(static_cast<uint64_t>(number("draws")));
  memory_ = std::move(saved.memory);
  logits_ = saved.logits.defined() ? saved.logits[0] : Tensor();
  seen_ = seen;
}

std::vector<int64_t> Generator::memory_sizes() const {
  std::vector<Tensor> sizes;
  for (size_t l = 0; l < memory_.layers.size(); ++l)
    sizes.push_back(model_.layers()[l].attention().alive(memory_.layers[l], memory_.clock).sum());
  const Tensor all = at::stack(sizes).to(at::kCPU);  // in one read
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

std::vector<int32_t> Generator::remembered() const {
  Tensor counts = at::zeros({seen_}, at::kInt);
  for (size_t l = 0; l < memory_.layers.size(); ++l) {
    const auto& table = memory_.layers[l];
    if (table.rows() == 0) continue;
    const Tensor alive =
        at::logical_and(model_.layers()[l].attention().alive(table, memory_.clock), is_token(table.kind()));
    const Tensor times = table.time().masked_select(alive).to(at::kCPU);
    counts.index_add_(0, times, at::ones_like(times, at::kInt));
  }
  return {counts.const_data_ptr<int32_t>(), counts.const_data_ptr<int32_t>() + seen_};
}

}  // namespace lapse
