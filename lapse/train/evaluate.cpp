#include "lapse/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "lapse/core/process.h"

namespace lapse {

at::Tensor block_tensor(const TokenBlock& block, const std::vector<int64_t>& tokens) {
  return at::tensor(tokens, at::kLong).view({block.batch, block.length});
}

EvaluationResult evaluate(Transformer& model, EvaluationBlocks& source, const EvaluationOptions& options) {
  at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const int64_t blocks = options.max_blocks > 0 ? std::min(options.max_blocks, source.blocks()) : source.blocks();
  ModelMemory memory;
  EvaluationResult result;
  result.layers.resize(model.layers().size());
  TokenBlock block;
  double sum = 0;
  for (int64_t done = 0; done < blocks && source.next(block); ++done) {
    if (block.restart) memory = model.begin(block.batch, false);
    const auto y = model.forward(block_tensor(block, block.input), memory, {.observe = true});
    const auto count = static_cast<int64_t>(block.target.size());
    sum += at::cross_entropy_loss(y.logits.flatten(0, 1), at::tensor(block.target, at::kLong)).item<double>() * count;
    result.tokens += count;
    for (size_t l = 0; l < y.reports.size(); ++l) {
      auto& layer = result.layers[l];
      layer.mean += (y.reports[l].memory_mean - layer.mean) * count / result.tokens;
      layer.max = std::max(layer.max, y.reports[l].memory_max);
    }
    if (options.progress) options.progress(done + 1, blocks, sum / result.tokens);
    if (interrupted()) {
      result.stopped = true;
      break;
    }
  }
  result.nats = sum / result.tokens;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace lapse
