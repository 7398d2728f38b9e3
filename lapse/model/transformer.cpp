#include "lapse/model/transformer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>

#include "lapse/core/error.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/dense/dropout.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/parallel/team.h"
#include "lapse/ops/waiting.h"
#include "lapse/ops/without_autograd.h"

namespace lapse {

using at::Tensor;

namespace {
// Up to so many tokens, a layer is many short steps, and threads spin between them (ops/parallel/team.h). With more
// streams libtorch copies whole tables when they grow, and needs all threads for that.
constexpr int64_t kFewTokens = 4;

LikelihoodOptions likelihood_options(const BlockOptions& options) {
  return {.answers = options.answers, .each = options.each, .bfloat16 = options.bfloat16};
}

void require_whole(const ModelMemory& memory) {
  if (memory.torn)
    fail(
        "an error ended the reading of a block half way, and these memories hold only part of it; begin them anew, "
        "or go on from a copy that was made before");
}

void require_shape(const char* name, const Tensor& given, at::ScalarType type, at::IntArrayRef shape) {
  if (given.defined() && (given.scalar_type() != type || given.sizes() != shape))
    fail(fmt::format("{} must be {} [{}], got {} [{}]", name, c10::toString(type), fmt::join(shape, ", "),
                     c10::toString(given.scalar_type()), fmt::join(given.sizes(), ", ")));
}

template <class Work>
void with_team(int64_t tokens, const Work& work) {
  if (tokens <= kFewTokens && !at::GradMode::is_enabled())
    Team::with(work);
  else
    work();
}
}  // namespace

PositionSizes position_sizes(const ModelConfig& config, const MethodOptions& method, const ModelShape& shape) {
  return {.width = shape.width,
          .heads = shape.heads,
          .head_dim = shape.head_dim,
          .ages = method.positions(shape),
          .block = shape.block,
          .bucket_distance = config.bucket_distance};
}

int64_t count_parameters(const ModelConfig& config, const MethodOptions& method, const ModelEnds& ends, int64_t block) {
  const ShapesOnly guard;
  return Transformer(config, method, ends, block, Random(0, "weights")).parameter_count();
}

void ModelMemory::reserve(int64_t tokens) {
  TORCH_CHECK(stored == Stored::projections, "only a memory of projections has room reserved");
  for (auto& table : layers) table.reserve(tokens);
}

void ModelMemory::to(at::Device device) {
  clock = clock.to(device);
  for (auto& table : layers) table.to(device);
  for (auto& rows : source)
    for (Tensor* x : {&rows.key, &rows.value, &rows.time}) *x = x->to(device);
}

int64_t ModelMemory::bytes() const {
  int64_t sum = 0;
  for (const auto& table : layers) sum += table.bytes();
  for (const auto& rows : source) sum += static_cast<int64_t>(rows.key.nbytes() + rows.value.nbytes());
  return sum;
}

Transformer::Transformer(const ModelConfig& config, const MethodOptions& method, const ModelEnds& ends, int64_t block,
                         Random random)
    : config_(config), shape_(shape_of(config, block)) {
  config.check();
  method.check(shape_);
  initial_rows_ = method.initial_rows(shape_);
  input_ = ends.input(config, random);
  positions_ = position_kind(config.positions).make(position_sizes(config, method, shape_), random);
  for (int64_t l = 0; l < config.layers; ++l) layers_.emplace_back(config, method, shape_, l, random);
  if (config.norm == "pre") norm_ = Norm(config.width, config.norm_kind, config.norm_epsilon);
  if (config.encoder_layers > 0) encoder_ = std::make_unique<Encoder>(config, random);
  output_ = ends.output(config, *input_, random);
}

NamedTensors Transformer::parameters() {
  NamedTensors all = input_->parameters();
  all.emplace_back("position", &positions_->table());
  for (size_t l = 0; l < layers_.size(); ++l)
    for (auto& [name, tensor] : layers_[l].parameters())
      all.emplace_back("layers." + std::to_string(l) + "." + name, tensor);
  norm_.name("norm", all);
  if (encoder_)
    for (auto& [name, tensor] : encoder_->parameters()) all.emplace_back("encoder." + name, tensor);
  for (auto& parameter : output_->parameters()) all.push_back(parameter);
  return all;
}

int64_t Transformer::parameter_count() {
  int64_t count = 0;
  for (auto& [name, tensor] : parameters()) count += tensor->numel();
  return count;
}

void Transformer::share(Transformer& other) {
  std::map<std::string, const Tensor*> theirs;
  for (auto& [name, tensor] : other.parameters()) theirs[name] = tensor;
  for (auto& [name, tensor] : parameters())
    if (const auto found = theirs.find(name); found != theirs.end()) *tensor = *found->second;
  device_ = other.device_;
}

void Transformer::to(const at::TensorOptions& options) {
  for (auto& [name, tensor] : parameters()) *tensor = tensor->detach().to(options).set_requires_grad(true);
  if (options.has_device()) device_ = options.device();
}

void Transformer::to_bfloat16() {
  for (auto& layer : layers_) layer.to_bfloat16();
  output_->to_bfloat16();
  if (encoder_) encoder_->to_bfloat16();
  positions_->to_bfloat16();
}

void Transformer::after_update() {
  for (auto& layer : layers_) layer.attention().method().after_update();
}

ModelMemory Transformer::begin(int64_t streams, Stored stored) const {
  ModelMemory memory{{}, at::zeros({streams}, at::TensorOptions(device_).dtype(at::kLong)), stored};
  memory.latest = 0;
  for (int64_t l = 0; l < config_.layers; ++l) memory.layers.push_back(begin_layer(l, streams, stored));
  return memory;
}

MemoryTable Transformer::begin_layer(int64_t layer, int64_t streams, Stored stored) const {
  MemoryTable table(streams);
  layers_[layer].attention().begin(table, initial_rows_, stored);
  return table;
}

void Transformer::reset(ModelMemory& memory, c10::ArrayRef<int64_t> streams) const {
  require_whole(memory);
  if (encoder_) fail("streams of a model with an encoder have a source; begin all of them anew, with their sources");
  for (const int64_t b : streams)
    if (b < 0 || b >= memory.clock.size(0))
      fail(fmt::format("reset: there is no stream {} of {}", b, memory.clock.size(0)));
  if (streams.empty()) return;
  const at::NoGradGuard no_grad;
  const std::set<int64_t> each(streams.begin(), streams.end());  // a stream's first rows come once, if named twice
  const Tensor numbers = at::tensor(std::vector<int64_t>(each.begin(), each.end()), at::kLong);
  const Tensor clock = memory.clock.index_fill(0, sent(numbers, memory.clock.device()), 0);
  memory.torn = true;
  for (size_t l = 0; l < layers_.size(); ++l) {
    memory.layers[l].reset(streams);
    if (initial_rows_ == 0) continue;
    const MemoryTable fresh = begin_layer(static_cast<int64_t>(l), numbers.size(0), memory.stored);
    memory.layers[l].insert(numbers.index_select(0, fresh.sample().to(at::kCPU)), fresh.columns());
  }
  memory.clock = clock;
  memory.torn = false;
}

ModelMemory Transformer::projected(const ModelMemory& inputs) const {
  require_whole(inputs);
  TORCH_CHECK(inputs.stored == Stored::inputs, "only a memory of inputs can be projected");
  ModelMemory memory{{}, inputs.clock, Stored::projections};
  for (size_t l = 0; l < layers_.size(); ++l)
    memory.layers.push_back(layers_[l].attention().projected(inputs.layers[l]));
  return memory;
}

BlockDraws Transformer::draw(Random& random) const {
  BlockDraws draws;
  draws.uniform = random.uniform();
  draws.seed = random.next();
  for (int64_t l = 0; l < config_.layers; ++l) draws.dropped.push_back(random.uniform() < config_.layer_drop);
  return draws;
}

Likelihood Transformer::likelihood(const Tensor& h, const Tensor& target) const {
  const Scored right = scored(target, device_);
  const BlockOptions options{.places = right.places};
  return output_->likelihood(norm_(options.at_places(h)), right.target, {});
}

std::vector<SourceRows> Transformer::encode(const BlockOptions& options, const BlockDraws& draws) const {
  // The layers' sites come first, then two of `hidden`.
  const std::optional<uint64_t> seed = draws.seed ? std::optional(mix64(*draws.seed + config_.layers + 2)) : draws.seed;
  const auto drop = [&](const Tensor& x, double p, int64_t site) {
    return p > 0 && seed ? dropped(x, {p, mix64(*seed + config_.encoder_layers + site)}) : x;
  };
  const int64_t B = options.source.size(0), S = options.source.size(1);
  const BlockTimes times(at::zeros({B}, at::TensorOptions(device_).dtype(at::kLong)), S, {});
  const Padding padding(options.source_lengths, S, device_);
  BlockOptions own{.bfloat16 = options.bfloat16};
  if (options.source_lengths.defined()) own.lengths = sent(options.source_lengths, device_);
  Tensor h = drop(padding.removed(input_->embed(options.source)), config_.embedding_dropout, 0);
  h = drop((*encoder_)(h, times, own, padding, seed), config_.output_dropout, 1);
  std::vector<SourceRows> rows;
  for (const auto& layer : layers_) rows.push_back(layer.source()->rows(h, own.lengths, padding, options.bfloat16));
  return rows;
}

// A block of K, token by token; reports are those of all its tokens. What they predict is computed at the end, for all.
Tensor Transformer::one_by_one(const Tensor& tokens, ModelMemory& memory, const BlockOptions& options, Result& result) {
  std::vector<Tensor> all;
  BlockOptions each = options;
  each.places.reset();
  for (int64_t i = 0; i < tokens.size(1); ++i) {
    if (options.lengths.defined()) each.lengths = (options.lengths - i).clamp(0, 1);
    if (options.begins.defined()) each.begins = options.begins.narrow(1, i, 1);
    Result one;
    with_team(tokens.size(0), [&] { all.push_back(hidden(tokens.narrow(1, i, 1), memory, each, {}, one)); });
    if (i == 0)
      result = std::move(one);
    else
      for (size_t l = 0; l < one.reports.size(); ++l) result.reports[l].join(one.reports[l]);
  }
  return options.at_places(lapse::cat(all, 1));
}

Transformer::Result Transformer::forward(const Tensor& tokens, ModelMemory& memory, const BlockOptions& given,
                                         const BlockDraws& draws) {
  check(tokens, memory, given);
  BlockOptions options = given;
  if (options.target.defined()) {
    const Scored right = scored(options.target, device_);
    options.places = right.places, options.target = right.target;
  }
  const bool stored = memory.stored == Stored::projections;
  const WithoutAutograd below;
  if (encoder_ && options.source.defined()) {
    memory.source = encode(options, draws);
    options.source.reset();
  }
  Result result;
  if (stored && tokens.size(1) > 1 && layers_[0].attention().method().one_by_one()) {
    predict(one_by_one(tokens, memory, options, result), options, result);
  } else {
    with_team(tokens.size(0) * tokens.size(1),
              [&] { predict(hidden(tokens, memory, options, draws, result), options, result); });
  }
  memory.torn = false;
  if (!stored) memory.source.clear();  // it has gradients: the next block brings its own
  return result;
}

void Transformer::predict(const Tensor& h, const BlockOptions& options, Result& result) const {
  if (options.target.defined())
    result.likelihood = output_->likelihood(h, options.target, likelihood_options(options));
  else
    result.logits = output_->logits(h, options.bfloat16);
}

void Transformer::check(const Tensor& tokens, ModelMemory& memory, const BlockOptions& options) const {
  require_whole(memory);
  const int64_t B = memory.clock.size(0);
  if (tokens.dim() < 2 || tokens.size(0) != B || tokens.scalar_type() != at::kLong)
    fail(fmt::format("tokens must be int64 [{0}, K] for a memory of {0} streams, got {1} [{2}]", B,
                     c10::toString(tokens.scalar_type()), fmt::join(tokens.sizes(), ", ")));
  const int64_t K = tokens.size(1);
  require_shape("target", options.target, at::kLong, {B, K});
  require_shape("lengths", options.lengths, at::kLong, {B});
  require_shape("begins", options.begins, at::kBool, {B, K});
  if (options.bfloat16 && memory.stored == Stored::projections)
    fail("bfloat16 products are for memories of inputs; Transformer::to_bfloat16 is for others");
  if (options.begins.defined() && (initial_rows_ > 0 || context() > 0))
    fail("episodes cannot begin within a block where streams start from zeros, or positions are absolute");
  if (encoder_ && memory.source.empty() && !options.source.defined())
    fail("this model has an encoder, and was given no source to read; `lapse eval` and `lapse generate` give it one");
  input_->check(tokens);
  if (encoder_ && options.source.defined()) input_->check(options.source);
  require_room(K, memory);
}

// Positions of times end somewhere: error if a stream would grow longer. A GPU is asked only where that may be so.
void Transformer::require_room(int64_t tokens, ModelMemory& memory) const {
  if (context() == 0) return;
  if (memory.latest > context() - tokens) memory.latest = memory.clock.max().item<int64_t>();
  if (memory.latest > context() - tokens)
    fail(
        fmt::format("this model has learned positions for windows of {0} tokens (model.positions = \"{1}\"), and "
                    "cannot read on in a longer one; read at most {0} tokens at a time",
                    context(), config_.positions));
}

Tensor Transformer::hidden(const Tensor& tokens, ModelMemory& memory, const BlockOptions& given,
                           const BlockDraws& draws, Result& result) {
  // Of the layers' sites numbers 0 ... layers - 1.
  const auto drop = [&](const Tensor& x, double p, int64_t site) {
    return p > 0 && draws.seed ? dropped(x, {p, mix64(*draws.seed + config_.layers + site)}) : x;
  };
  const Padding padding(given.lengths, tokens.size(1), device_);
  Tensor h = drop(padding.removed(embed(tokens, memory.clock)), config_.embedding_dropout, 0);
  memory.torn = true;  // until all layers have read the block, and what it predicts is known
  BlockOptions options = given;
  if (given.lengths.defined()) options.lengths = sent(given.lengths, device_);
  options.places = padding.places(given.places);
  BlockOptions inner = options;  // all positions but the last layer's are read by the next layer
  inner.places.reset();
  const BlockTimes times(memory.clock, tokens.size(1), options.begins);
  const Ages ages = this->ages();
  std::vector<MemoryTable::Sieve> sieves;
  for (size_t l = 0; l < layers_.size(); ++l) {
    // Attention to a source follows the layer's first sublayer, and wants all positions too.
    const bool all = encoder_ || l + 1 < layers_.size();
    LayerPass pass{times, all ? inner : options, ages, memory.stored, memory.layers[l]};
    pass.padding = padding;
    if (encoder_) pass.source = &memory.source[l];
    pass.draws.uniform = draws.uniform, pass.draws.dropped = !draws.dropped.empty() && draws.dropped[l];
    if (draws.seed) pass.draws.seed = mix64(*draws.seed + l);
    h = layers_[l](h, pass);
    if (pass.cost.defined()) result.cost = result.cost.defined() ? result.cost + pass.cost : pass.cost;
    if (options.observe || options.rows || options.pairs == Pairs::reads)
      result.reports.push_back(std::move(pass.report));
    if (pass.kept.defined()) sieves.push_back({&memory.layers[l], std::move(pass.kept)});
    // A GPU is waited for once, at the end. The CPU need not wait: rows go before the next layer needs room.
    if (device_.is_cpu()) MemoryTable::keep(sieves), sieves.clear();
  }
  MemoryTable::keep(sieves);
  if (!result.cost.defined()) result.cost = at::zeros({}, h.options());
  if (options.observe) count(result.reports);
  if (encoder_) h = options.at_places(h);
  memory.clock = shifted(memory.clock, tokens.size(1));
  if (memory.latest != kNever) memory.latest += tokens.size(1);
  h = drop(norm_(h), config_.output_dropout, 1);
  return options.places.defined() ? h : padding.restored(h);
}

}  // namespace lapse
