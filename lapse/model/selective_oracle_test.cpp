// The base model of Selective Attention's section 5 (pre-norm RMSNorm, SwiGLU, normalised heads, learned absolute
// positions, no biases, tokens attend themselves) against a dense one, written from the paper's formulas with explicit
// [N, N] matrices: logits, cost, gradients, with standard and with selective attention.
#include <gtest/gtest.h>

#include "lapse/forgetting/budgets.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

struct Sizes {
  int64_t batch, window, vocabulary, layers, heads, head_dim, width, feed_forward;
};

// Odd numbers, ones, windows beside multiples of 64 (a kernel's tile) and heads that do not fill the width.
const Sizes kSizes[] = {
    {3, 40, 11, 2, 3, 4, 12, 0},  {1, 1, 2, 1, 1, 1, 1, 1},  {2, 2, 3, 3, 1, 5, 7, 0},
    {1, 65, 17, 2, 2, 7, 10, 13}, {2, 63, 5, 1, 5, 3, 9, 0}, {1, 131, 23, 2, 1, 16, 6, 1},
};

struct Variant {
  const char* name;
  std::string method;
  Settings settings;
};

const Variant kVariants[] = {
    {"standard", "fixed_span", {{"max_span", "500"}}},
    {"standard_window", "fixed_span", {{"max_span", "29"}}},
    {"selective", "selective_attention", {{"max_span", "500"}}},
    {"selective_memory_loss", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.1"}}},
    {"selective_other_cap", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.3"}, {"cap", "0.4"}}},
    {"selective_window", "selective_attention", {{"max_span", "29"}, {"memory_loss", "0.1"}}},
    {"no_shift", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.1"}, {"shift", "false"}}},
    {"mask_first", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.1"}, {"mask_first", "true"}}},
    {"mask_self", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.1"}, {"mask_self", "true"}}},
    {"no_relu", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.1"}, {"relu", "false"}}},
    {"separate", "selective_attention", {{"max_span", "500"}, {"memory_loss", "0.1"}, {"separate", "true"}}},
};

std::unique_ptr<Transformer> model_of(const Variant& variant, const Sizes& s) {
  ModelConfig config;
  config.width = s.width, config.layers = s.layers, config.heads = s.heads, config.head_dim = s.head_dim;
  config.feed_forward = s.feed_forward;
  config.norm = "pre", config.norm_kind = "rms", config.activation = "swiglu", config.positions = "absolute";
  config.biases = false, config.normed_heads = config.attend_self = true;
  auto model = std::make_unique<Transformer>(config, *method_options(variant.method, variant.settings), s.vocabulary,
                                             s.window, Random(1, "weights"));
  // Scales of norms other than 1, and positions that matter as much as tokens.
  Random random(2, "scales");
  for (auto& [name, tensor] : model->parameters()) {
    Tensor values = tensor->detach();
    if (name.find("norm") != std::string::npos)
      for (int64_t i = 0; i < values.numel(); ++i) values[i].fill_(0.5 + random.uniform());
    if (name == "position") values.mul_(8);
  }
  return model;
}

/// Everything at once: a window [B, N] of tokens, from the model's weights in float64.
class DenseModel {
 public:
  DenseModel(const Variant& variant, const Sizes& sizes, Transformer& model) : v_(variant), s_(sizes) {
    for (auto& [name, tensor] : model.parameters()) p_[name] = tensor->detach().to(at::kDouble).set_requires_grad(true);
  }
  std::map<std::string, Tensor>& parameters() { return p_; }

  struct Result {
    Tensor logits, cost;
  };
  /// `lengths`: tokens of each window before its padding. `budget`: tokens that each layer may hold; 0: all.
  Result forward(const Tensor& tokens, const std::vector<int64_t>& lengths, int64_t budget = 0) {
    const int64_t N = tokens.size(1);
    Tensor h = at::embedding(p_["embedding"], tokens) + p_["position"].narrow(0, 0, N);
    Tensor cost = at::zeros({}, at::kDouble);
    for (int64_t l = 0; l < s_.layers; ++l) {
      const std::string name = "layers." + std::to_string(l) + ".";
      const Tensor x = norm(h, p_[name + "norm1.weight"]);
      h = h + attend(x, name, lengths, budget, cost);
      const Tensor y = norm(h, p_[name + "norm2.weight"]);
      const Tensor gate = at::linear(y, p_[name + "ff.gate"]);
      h = h + at::linear(gate * at::sigmoid(gate) * at::linear(y, p_[name + "ff1.weight"]), p_[name + "ff2.weight"]);
    }
    return {at::linear(norm(h, p_["norm.weight"]), p_["output.weight"]), cost};
  }

 private:
  double number(const std::string& name, double otherwise) const {
    const auto found = v_.settings.find(name);
    return found == v_.settings.end() ? otherwise : std::stod(found->second);
  }
  bool on(const std::string& name, bool otherwise = false) const {
    const auto found = v_.settings.find(name);
    return found == v_.settings.end() ? otherwise : found->second == "true";
  }

  static Tensor norm(const Tensor& x, const Tensor& scale) {
    return x / at::sqrt(x.pow(2).mean(-1, /*keepdim=*/true) + 1e-5) * scale;
  }

  /// What attention adds to h, of the normed h `x`.
  Tensor attend(const Tensor& x, const std::string& name, const std::vector<int64_t>& lengths, int64_t budget,
                Tensor& cost) {
    const int64_t B = x.size(0), N = x.size(1), D = s_.head_dim;
    auto heads = [&](const char* map) {
      return at::linear(x, p_[name + map]).view({B, N, s_.heads, D}).transpose(1, 2);
    };
    const Tensor q = norm(heads("query"), p_[name + "query_norm.weight"]);
    const Tensor k = norm(heads("key"), p_[name + "key_norm.weight"]);
    const Tensor logits = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(D));
    const Tensor time = at::arange(N, at::kLong), age = time.unsqueeze(1) - time;
    const bool selective = v_.method == "selective_attention";
    Tensor seen = (age >= 0) & (age <= number("max_span", 0) - (selective ? 1 : 0));  // [N, N]
    Tensor masked = logits;
    if (selective) {
      Tensor select = logits.select(1, 0);
      if (on("separate")) {
        const Tensor own_q = norm(at::linear(x, p_[name + "select.query"]), p_[name + "select.query_norm"]);
        const Tensor own_k = norm(at::linear(x, p_[name + "select.key"]), p_[name + "select.key_norm"]);
        select = at::matmul(own_q, own_k.transpose(1, 2)) / std::sqrt(static_cast<double>(D));
      }
      if (budget > 0) seen = pruned(select.detach(), seen, budget);
      const Tensor F = masking(select, seen);
      masked = logits - F.unsqueeze(1);
      seen = seen.expand({B, N, N});
      cost = cost + memory_loss(F, seen, lengths);
      seen = seen.unsqueeze(1);
    }
    const Tensor a = at::softmax(masked.masked_fill(~seen, -INFINITY), 3);
    return at::linear(at::matmul(a, heads("value")).transpose(1, 2).reshape({B, N, s_.heads * D}), p_[name + "out"]);
  }

  /// S of logits [B, N, N] where `seen`.
  Tensor selection(const Tensor& logits, const Tensor& seen) const {
    Tensor S = (on("relu", true) ? at::relu(logits) : logits) * seen.to(at::kDouble);
    const int64_t N = S.size(2);
    Tensor may = at::ones({N, N}, at::kDouble);
    if (!on("mask_first")) may.select(1, 0).zero_();
    if (!on("mask_self")) may.fill_diagonal_(0);
    return S * may;
  }

  /// F [B, N, N]: the sum of S over the queries before, with `shift = false` over a query's own S too.
  Tensor masking(const Tensor& logits, const Tensor& seen) const {
    const Tensor S = selection(logits, seen), sums = S.cumsum(1);
    return on("shift", true) ? sums - S : sums;
  }

  /// Section 4, one query after another: what each still sees. Before query n reads, if it would see more than the
  /// budget, the past token with the largest F[n, .] goes; ties go to the oldest, BOS last.
  Tensor pruned(const Tensor& logits, const Tensor& seen, int64_t budget) const {
    const int64_t B = logits.size(0), N = logits.size(1);
    Tensor held = seen.expand({B, N, N}).clone();
    for (int64_t b = 0; b < B; ++b)
      for (int64_t n = 0; n < N; ++n) {
        if (held[b][n].sum().item<int64_t>() <= budget) continue;
        const Tensor S = selection(logits[b].unsqueeze(0), held[b]).squeeze(0);
        const Tensor F = S.narrow(0, 0, n).sum(0);
        int64_t least = -1;
        for (int64_t m = 1; m < n; ++m) {
          const bool can_go = held[b][n][m].item<bool>();
          if (can_go && (least < 0 || F[m].item<double>() > F[least].item<double>())) least = m;
        }
        if (held[b][n][0].item<bool>() && (least < 0 || F[0].item<double>() > F[least].item<double>())) least = 0;
        held[b].narrow(0, n, N - n).select(1, least).fill_(false);
      }
    return held;
  }

  /// epsilon / (layers n) max_i M_i, the mean over the batch; n: the sequence's tokens that are no padding.
  Tensor memory_loss(const Tensor& F, const Tensor& seen, const std::vector<int64_t>& lengths) const {
    const double tau = number("cap", 1), scale = number("memory_loss", 0) / static_cast<double>(s_.layers);
    const Tensor M = ((1 - F.clamp_max(tau) / tau) * seen.to(at::kDouble)).sum(2);
    Tensor sum = at::zeros({}, at::kDouble);
    for (size_t b = 0; b < lengths.size(); ++b) {
      sum = sum + std::get<0>(M[b].narrow(0, 0, lengths[b]).max(0)) * scale / static_cast<double>(lengths[b]);
    }
    return sum / static_cast<double>(lengths.size());
  }

  const Variant v_;
  const Sizes s_;
  std::map<std::string, Tensor> p_;
};

Tensor tokens_of(const Sizes& s, uint64_t seed) {
  return random_tokens(s.batch, s.window, seed).remainder(s.vocabulary);
}

Tensor loss_of(const Tensor& logits, const Tensor& targets, const Tensor& cost) {
  return at::cross_entropy_loss(logits.flatten(0, 1), targets) + cost;
}

class SelectiveOracle : public testing::TestWithParam<Variant> {
  const Threads one_{1};
};
INSTANTIATE_TEST_SUITE_P(Variants, SelectiveOracle, testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

/// Logits, cost and gradients of a training step of windows, some of them padded, in `type`.
void compare_training(const Variant& variant, const Sizes& s, at::ScalarType type, double tolerance) {
  SCOPED_TRACE(testing::Message() << "batch " << s.batch << ", window " << s.window << ", width " << s.width);
  const auto model = model_of(variant, s);
  model->to(type);
  DenseModel dense(variant, s, *model);
  std::vector<int64_t> lengths(s.batch, s.window);
  lengths.back() = (s.window + 1) / 2;
  const Tensor tokens = tokens_of(s, 1),
               real = at::tensor(lengths, at::kLong).unsqueeze(1) > at::arange(s.window, at::kLong);
  const Tensor targets = tokens_of(s, 2).masked_fill(~real, -100).flatten();  // -100: not scored
  ModelMemory memory = model->begin(s.batch, Stored::inputs);
  const auto y = model->forward(tokens, memory, {.lengths = at::tensor(lengths, at::kLong)});
  const auto z = dense.forward(tokens, lengths);
  const Tensor scored = real.flatten().nonzero().squeeze(1);
  auto of = [&](const Tensor& logits) { return logits.flatten(0, 1).index_select(0, scored); };
  EXPECT_LE(difference(of(y.logits).to(at::kDouble), of(z.logits)), tolerance);
  EXPECT_LE(difference(y.cost.to(at::kDouble), z.cost), tolerance);
  const Tensor ours = loss_of(y.logits, targets, y.cost), theirs = loss_of(z.logits, targets, z.cost);
  EXPECT_LE(difference(ours.to(at::kDouble), theirs), tolerance);
  ours.backward();
  theirs.backward();
  for (auto& [name, tensor] : model->parameters()) {
    const Tensor expected = dense.parameters().at(name).grad();
    if (!expected.defined() ||
        expected.abs().max().item<double>() < 1e-12) {  // a window of 1 has nothing to choose from
      EXPECT_LE(s.window, 2) << name;
      EXPECT_TRUE(!tensor->grad().defined() || tensor->grad().abs().max().item<double>() < 1e-7) << name;
      continue;
    }
    EXPECT_LE(difference(tensor->grad().to(at::kDouble), expected), tolerance) << name;
  }
}

// float64 sums of some tens of terms in a few layers: 1e-10 is far above rounding and far below any term left out.
TEST_P(SelectiveOracle, AgreesInTrainingWithCostsAndGradients) {
  for (const Sizes& s : kSizes) compare_training(GetParam(), s, at::kDouble, 1e-10);
}

// The kernels that training uses are float32's: some hundred roundings of 6e-8. Not of width 1: what an RMSNorm makes
// of one feature is its sign, and its gradient what rounding leaves.
TEST_P(SelectiveOracle, AgreesInFloat32) {
  for (const Sizes& s : kSizes)
    if (s.width > 1) compare_training(GetParam(), s, at::kFloat, 1e-5);
}

TEST_P(SelectiveOracle, AgreesInEvaluationHoweverTheWindowIsCut) {
  at::NoGradGuard no_grad;
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(testing::Message() << "batch " << s.batch << ", window " << s.window);
    const auto model = model_of(GetParam(), s);
    model->to(at::kDouble);
    DenseModel dense(GetParam(), s, *model);
    const Tensor tokens = tokens_of(s, 3);
    const auto z = dense.forward(tokens, std::vector<int64_t>(s.batch, s.window));
    for (const int64_t block : {s.window, int64_t{1}, int64_t{7}}) {
      ModelMemory memory = model->begin(s.batch, Stored::projections);
      for (int64_t t = 0; t < s.window; t += block) {
        const int64_t K = std::min(block, s.window - t);
        const auto y = model->forward(tokens.narrow(1, t, K), memory, {});
        EXPECT_LE(difference(y.logits, z.logits.narrow(1, t, K)), 1e-10) << "tokens from " << t << ", " << K;
      }
    }
  }
}

TEST_P(SelectiveOracle, AgreesUnderABudget) {
  if (GetParam().method != "selective_attention") return;  // fixed spans have no budget
  at::NoGradGuard no_grad;
  for (const Sizes& s : kSizes)
    for (const int64_t budget : {1, 2, 9, 30}) {
      SCOPED_TRACE(testing::Message() << "batch " << s.batch << ", window " << s.window << ", budget " << budget);
      const auto model = model_of(GetParam(), s);
      model->to(at::kDouble);
      for (auto& layer : model->layers()) set_budget(layer.attention().method(), budget);
      DenseModel dense(GetParam(), s, *model);
      const Tensor tokens = tokens_of(s, 4);
      const auto z = dense.forward(tokens, std::vector<int64_t>(s.batch, s.window), budget);
      ModelMemory memory = model->begin(s.batch, Stored::projections);
      EXPECT_LE(difference(model->forward(tokens, memory, {}).logits, z.logits), 1e-10);
    }
}

}  // namespace
}  // namespace lapse
