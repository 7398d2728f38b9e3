#include "lapse/train/batch.h"

#include "lapse/model/likelihood.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/waiting.h"

namespace lapse {

static_assert(kUnscored == kNoTarget);

Batch::Batch(const TokenBlock& block)
    : input(at::tensor(block.input, at::kLong).view({block.batch, block.length})),
      target(at::tensor(block.target, at::kLong).view({block.batch, block.length})),
      answers(block.answers) {
  if (!block.lengths.empty()) lengths = at::tensor(block.lengths, at::kLong);
  if (!block.source.empty()) source = at::tensor(block.source, at::kLong).view({block.batch, -1});
}

template <class F>
Batch Batch::each(const F& f) const {
  Batch all(f(input), f(target));
  all.answers = answers;
  if (lengths.defined()) all.lengths = f(lengths);
  if (begins.defined()) all.begins = f(begins);
  if (source.defined()) all.source = f(source);
  for (const auto& [name, values] : more) all.more[name] = f(values);
  return all;
}

Batch Batch::part(int64_t first, int64_t size) const {
  return each([&](const at::Tensor& x) { return x.narrow(0, first, size); });
}

Batch Batch::to(at::Device device) const {
  Batch there = each([&](const at::Tensor& x) { return sent(x, device); });
  there.target = target, there.lengths = lengths;
  return there;
}

}  // namespace lapse
