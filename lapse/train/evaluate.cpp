#include "lapse/train/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/model/likelihood.h"
#include "lapse/ops/aten.h"
#include "lapse/train/batch.h"
#include "lapse/train/told.h"

namespace lapse {

using at::Tensor;

/// Puts scored positions together to answers, which may reach from block to block. Scored positions end with their
/// answer; where it is told which are asked for, an answer that the reading breaks off is not counted.
class Evaluator::Answers {
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

bool any_scored(EvaluationBlocks& blocks, int64_t max_blocks) {
  TokenBlock block;
  for (int64_t i = 0; (max_blocks == 0 || i < max_blocks) && blocks.next(block); ++i)
    if (block.scored() > 0) return true;
  return false;
}

namespace {

/// The targets of the block cost `found`, token by token.
TokenLosses losses_of(const TokenBlock& block, const Likelihood& found, const std::vector<LayerReport>& reports) {
  TokenLosses losses;
  losses.nats.assign(block.target.size(), std::numeric_limits<double>::quiet_NaN());
  const Tensor each = found.each.to(at::kCPU, at::kDouble).contiguous();
  const auto* next = each.const_data_ptr<double>();
  for (size_t i = 0; i < losses.nats.size(); ++i)
    if (block.target[i] != kUnscored) losses.nats[i] = *next++;
  for (const auto& report : reports) {
    const Tensor sizes = report.sizes.to(at::kCPU).contiguous();
    const auto* first = sizes.const_data_ptr<int64_t>();
    losses.sizes.emplace_back(first, first + sizes.numel());
  }
  return losses;
}

void join(Tensor& all, const Tensor& next) {
  all = all.defined() ? lapse::cat({(all + next).narrow(0, 0, 2), at::maximum(all, next).narrow(0, 2, 1)}) : next;
}

void join(EvaluationResult::LayerMemory::Told& all, double sum, double count, double max) {
  if (count == 0) return;
  all.max = all.count > 0 ? std::max(all.max, max) : max;
  all.sum += sum, all.count += count;
  all.mean = all.sum / all.count;
}

}  // namespace

nlohmann::ordered_json to_json(const EvaluationResult::LayerMemory& layer) {
  nlohmann::ordered_json json = {{"memory_mean", layer.mean}, {"memory_max", layer.max}};
  for (const auto& [name, values] : layer.told) json[name + "_mean"] = values.mean, json[name + "_max"] = values.max;
  return json;
}

Evaluator::Evaluator(Transformer& model, bool any_loss)
    : model_(model),
      any_loss_(any_loss),
      sizes_(model.layers().size()),
      told_(sizes_.size()),
      answers_(std::make_unique<Answers>()) {
  result_.layers.resize(sizes_.size());
}

Evaluator::~Evaluator() = default;

void Evaluator::read(const TokenBlock& block, TokenLosses* each) {
  at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  Score& score = result_.score;
  if (block.restart) memory_ = model_.begin(block.batch, Stored::projections);
  const Batch batch = Batch(block).to(model_.device());
  const auto y = model_.forward(batch.input, memory_,
                                {.observe = true,
                                 .lengths = batch.lengths,
                                 .target = batch.target,
                                 .source = batch.source,
                                 .answers = block.answers,
                                 .each = each != nullptr});
  const Likelihood& found = y.likelihood;
  score.nats += found.nats.item<double>();
  if (found.right.defined()) {
    const Tensor right = found.right.to(at::kCPU);
    score.right += right.sum().item<int64_t>();
    answers_->add(block, right.const_data_ptr<bool>());
  }
  if (!any_loss_) require_finite(score.nats);
  score.scored += found.scored, score.bytes += block.bytes;
  result_.tokens += block.tokens();
  for (size_t l = 0; l < y.reports.size(); ++l) {
    sizes_[l].memory_sum += y.reports[l].memory_sum, sizes_[l].queries += y.reports[l].queries;
    sizes_[l].memory_max = std::max(sizes_[l].memory_max, y.reports[l].memory_max);
    // Read token by token, a row is told of when it is made, before anything has read it.
    if (!model_.layers()[l].attention().method().one_by_one())
      for (const auto& [name, values] : y.reports[l].told) join(told_[l][name], sum_count_max(values));
  }
  if (each) *each = losses_of(block, found, y.reports);
  result_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

EvaluationResult Evaluator::finish() {
  answers_->finish();
  for (size_t l = 0; l < sizes_.size(); ++l) {
    auto& layer = result_.layers[l];
    const auto& all = sizes_[l];
    layer = {.mean = all.memory_mean(), .max = all.memory_max, .sum = all.memory_sum};
    layer.queries = static_cast<double>(all.queries);
    for (const auto& [name, device] : told_[l]) {
      const Tensor values = device.to(at::kCPU).contiguous();
      const auto* of = values.const_data_ptr<double>();
      join(layer.told[name], of[0], of[1], of[2]);
    }
  }
  Score& score = result_.score;
  score.answers = answers_->all(), score.right_answers = answers_->right();
  result_.nats = score.scored > 0 ? score.nats / static_cast<double>(score.scored) : 0;
  return std::move(result_);
}

namespace {

/// A part's result as numbers, for `add`.
std::vector<double> numbers_of(const EvaluationResult& part) {
  const Score& score = part.score;
  std::vector<double> all = {score.nats, part.seconds};
  for (const int64_t count : {part.tokens, score.scored, score.bytes.all, score.bytes.unknown, score.right,
                              score.answers, score.right_answers})
    all.push_back(static_cast<double>(count));
  for (const auto& layer : part.layers) all.insert(all.end(), {layer.sum, layer.queries, layer.max});
  return all;
}

void add(EvaluationResult& all, const double* next) {
  Score& score = all.score;
  score.nats += *next++, all.seconds += *next++;
  for (int64_t* count : {&all.tokens, &score.scored, &score.bytes.all, &score.bytes.unknown, &score.right,
                         &score.answers, &score.right_answers})
    *count += std::llround(*next++);
  for (auto& layer : all.layers) {
    layer.sum += *next++, layer.queries += *next++, layer.max = std::max(layer.max, *next++);
    layer.mean = layer.queries > 0 ? layer.sum / layer.queries : 0;
  }
}

/// What the method tells, as text for other ranks: of each part and layer, by name, sum, count and maximum.
std::string told_of(const std::vector<EvaluationResult>& parts) {
  Json all = Json::array();
  for (const auto& part : parts) {
    Json& layers = all.emplace_back(Json::array());
    for (const auto& layer : part.layers) {
      Json& told = layers.emplace_back(Json::object());
      for (const auto& [name, values] : layer.told) told[name] = {values.sum, values.count, values.max};
    }
  }
  return all.dump();
}

void add_told(EvaluationResult& all, const std::string& text) {
  const auto number = [](const Json& value) {  // JSON has no infinity and no NaN
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  };
  for (const Json& layers : parse_json(text, "what a rank tells of its memory"))
    for (size_t l = 0; l < layers.size(); ++l)
      for (const auto& [name, values] : layers[l].items())
        join(all.layers[l].told[name], number(values[0]), number(values[1]), number(values[2]));
}

/// Of all parts, on every rank. Each rank fills its own parts' lines of a table of zeros, so that sums over ranks are
/// exact.
EvaluationResult joined(const std::vector<EvaluationResult>& own, Group& group) {
  if (own.size() == 1 && group.alone()) return own[0];
  std::vector<double> table;
  const auto width = std::ssize(numbers_of(own[0])), count = std::ssize(own);
  table.resize(width * count * group.size());
  for (int64_t p = 0; p < count; ++p)
    std::ranges::copy(numbers_of(own[p]), table.begin() + (group.rank() * count + p) * width);
  group.sum(table);
  EvaluationResult all;
  all.layers.resize(own[0].layers.size());
  for (int64_t p = 0; p < count * group.size(); ++p) add(all, table.data() + p * width);
  for (const auto& text : group.gather(told_of(own))) add_told(all, text);
  all.seconds /= static_cast<double>(group.size());  // they read at the same time
  all.nats = all.score.scored > 0 ? all.score.nats / static_cast<double>(all.score.scored) : 0;
  return all;
}

/// Of the first part, for progress. It has counted the bytes of all parts (TokenBlock::part), which have `scored`
/// positions.
Score score_of_first(const Evaluator& part, int64_t scored) {
  Score score = part.score();
  for (int64_t* bytes : {&score.bytes.all, &score.bytes.unknown})
    if (scored > 0)
      *bytes = static_cast<int64_t>(static_cast<double>(*bytes) * static_cast<double>(score.scored) /
                                    static_cast<double>(scored));
  return score;
}

}  // namespace

EvaluationResult evaluate(Transformer& model, EvaluationBlocks& source, const EvaluationOptions& options) {
  const int64_t blocks = options.max_blocks > 0 ? std::min(options.max_blocks, source.blocks()) : source.blocks();
  Group& group = options.group;
  const auto [first, count] = share_of(options.parts, group.rank(), group.size());
  std::vector<std::unique_ptr<Evaluator>> own;
  for (int64_t p = 0; p < count; ++p) own.push_back(std::make_unique<Evaluator>(model, options.any_loss));
  bool stopped = false;
  TokenBlock block;
  TokenLosses losses;
  int64_t scored = 0;
  for (int64_t done = 0; done < blocks && !stopped && source.next(block); ++done) {
    for (int64_t p = 0; p < count; ++p) {
      const auto [from, size] = share_of(block.batch, first + p, options.parts);
      if (size > 0) own[p]->read(block.part(from, size), options.each ? &losses : nullptr);
    }
    if (options.each) options.each(block, losses);
    scored += block.scored();
    if (options.progress) options.progress(done + 1, blocks, score_of_first(*own[0], scored));
    stopped = group.any(interrupted());
  }
  std::vector<EvaluationResult> parts;
  for (auto& part : own) parts.push_back(part->finish());
  EvaluationResult result = joined(parts, group);
  result.stopped = stopped;
  result.whole = blocks == source.blocks();
  if (result.score.scored == 0 && !stopped)
    fail(std::string("nothing in what was evaluated is scored; ") +
         (result.whole ? "take a longer text, or of a task another set (--test-seed)" : "evaluate more of it"));
  return result;
}

}  // namespace lapse
