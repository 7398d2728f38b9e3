#include "lapse/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/model/likelihood.h"
#include "lapse/train/batch.h"

namespace lapse {

using at::Tensor;

namespace {

/// Puts scored positions together to answers, which may reach from block to block. Scored positions end with their
/// answer; where it is told which are asked for, an answer that the reading breaks off is not counted.
class Answers {
 public:
  /// `right`: of the block's scored positions, in order.
  void add(const TokenBlock& block, const bool* right) {
    if (block.restart) finish();
    open_.resize(block.batch);
    told_ = !block.asked.empty();
    for (int64_t b = 0; b < block.batch; ++b)
      for (int64_t i = b * block.length; i < (b + 1) * block.length; ++i) {
        const bool scored = block.target[i] != kUnscored, hit = scored && *right++;
        if (!scored || (told_ && !block.asked[i]))
          close(open_[b]);
        else if (open_[b] != kWrong)
          open_[b] = hit ? kRight : kWrong;
      }
  }
  void finish() {
    if (told_) open_.assign(open_.size(), kNone);
    for (State& state : open_) close(state);
  }
  int64_t all() const { return all_; }
  int64_t right() const { return right_; }

 private:
  enum State : uint8_t { kNone, kRight, kWrong };
  void close(State& state) {
    all_ += state != kNone, right_ += state == kRight;
    state = kNone;
  }

  std::vector<State> open_;  // of each stream
  bool told_ = false;
  int64_t all_ = 0, right_ = 0;
};

}  // namespace

bool any_scored(EvaluationBlocks& blocks, int64_t max_blocks) {
  TokenBlock block;
  for (int64_t i = 0; (max_blocks == 0 || i < max_blocks) && blocks.next(block); ++i)
    if (block.scored() > 0) return true;
  return false;
}

EvaluationResult evaluate(Transformer& model, EvaluationBlocks& source, const EvaluationOptions& options) {
  at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const int64_t blocks = options.max_blocks > 0 ? std::min(options.max_blocks, source.blocks()) : source.blocks();
  ModelMemory memory;
  EvaluationResult result;
  result.layers.resize(model.layers().size());
  std::vector<LayerReport> sizes(model.layers().size());  // of all blocks
  Score& score = result.score;
  Answers answers;
  TokenBlock block;
  for (int64_t done = 0; done < blocks && source.next(block); ++done) {
    if (block.restart) memory = model.begin(block.batch, Stored::projections);
    const Batch batch = Batch(block).to(model.device());
    const auto y =
        model.forward(batch.input, memory,
                      {.observe = true, .lengths = batch.lengths, .target = batch.target, .answers = block.answers});
    const Likelihood& found = y.likelihood;
    score.nats += found.nats.item<double>();
    if (found.right.defined()) {
      const Tensor right = found.right.to(at::kCPU);
      score.right += right.sum().item<int64_t>();
      answers.add(block, right.const_data_ptr<bool>());
    }
    if (!options.any_loss) require_finite(score.nats);
    score.scored += found.scored, score.bytes += block.bytes;
    result.tokens += std::ssize(block.target);
    for (size_t l = 0; l < y.reports.size(); ++l) {
      sizes[l].memory_sum += y.reports[l].memory_sum, sizes[l].queries += y.reports[l].queries;
      result.layers[l] = {sizes[l].memory_mean(), std::max(result.layers[l].max, y.reports[l].memory_max)};
    }
    if (options.progress) options.progress(done + 1, blocks, score);
    if (interrupted()) {
      result.stopped = true;
      break;
    }
  }
  if (score.scored == 0 && !result.stopped) fail("nothing in what was evaluated is scored; evaluate more of it");
  answers.finish();
  score.answers = answers.all(), score.right_answers = answers.right();
  result.nats = score.scored > 0 ? score.nats / static_cast<double>(score.scored) : 0;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace lapse
