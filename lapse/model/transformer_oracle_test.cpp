// The model against a dense one written from the equations, which keeps every memory for ever: outputs, costs,
// gradients, and the sizes of memory that it reports.
#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

struct Variant {
  const char* name;
  std::string method, norm;
  Settings settings;
  int64_t evaluated_span = 0;  // as an option of the evaluation
};

const Settings kShort = {{"max_span", "22"}, {"ramp", "6.5"}, {"loss", "0.01"}};

Settings with(Settings more) {
  more.insert(kShort.begin(), kShort.end());
  return more;
}

const Variant kVariants[] = {
    {"fixed", "fixed_span", "post", kShort},
    {"fixed_pre_zeros", "fixed_span", "pre", with({{"initial_memory", "zeros"}})},
    {"fixed_evaluated_shorter", "fixed_span", "post", kShort, 9},
    {"expire", "expire_span", "post", kShort},
    {"expire_pre_zeros", "expire_span", "pre", with({{"initial_memory", "zeros"}})},
    {"expire_zeros_random_drop", "expire_span", "post", with({{"initial_memory", "zeros"}, {"random_drop", "true"}})},
    {"expire_pre_random_drop", "expire_span", "pre", with({{"random_drop", "true"}})},
    {"expire_loss_at_creation", "expire_span", "post", with({{"loss_at", "creation"}, {"initial_memory", "zeros"}})},
    {"expire_creation_random_drop", "expire_span", "pre", with({{"loss_at", "creation"}, {"random_drop", "true"}})},
    {"expire_divided_input", "expire_span", "post", with({{"divisor", "1.5"}, {"divide", "input"}})},
    {"expire_divided_all", "expire_span", "post", with({{"divisor", "1.5"}, {"divide", "all"}})},
    {"expire_evaluated_shorter", "expire_span", "pre", kShort, 7},
};

std::unique_ptr<MethodOptions> options_of(const Variant& v) {
  auto options = method_options(v.method, v.settings);
  if (v.evaluated_span > 0) set_fields(options->reading_fields(), {{"max_span", std::to_string(v.evaluated_span)}});
  return options;
}

/// Plain tensors and masks: a query may see every timestep before its own, and the masks say which it does.
class DenseModel {
 public:
  DenseModel(const Variant& variant, Transformer& model) : v_(variant), pre_(variant.norm == "pre") {
    for (auto& [name, tensor] : model.parameters()) p_[name] = *tensor;
    const bool zeros = setting("initial_memory", "empty") == "zeros";
    initial_ = !zeros ? 0 : v_.method == "fixed_span" ? number("max_span") : kBlock;
  }

  struct Result {
    Tensor logits, cost;
  };
  Result forward(const Tensor& tokens, double uniform) {
    Tensor h = at::embedding(p_["embedding"], tokens), cost = at::zeros({}, at::kDouble);
    if (history_.empty()) history_.assign(2, at::zeros({tokens.size(0), initial_, 12}, at::kDouble));
    spans_.assign(2, {});
    for (int64_t l = 0; l < 2; ++l) h = layer(h, l, uniform, cost);
    if (pre_) h = norm(h, "norm");
    return {at::linear(h, p_["output.weight"], p_["output.bias"]), cost};
  }

  /// m > 0 for queries at each of the block's times and one after: [B, K + 1, T], of the model's own spans.
  Tensor visible(int64_t l, int64_t K) const {
    const int64_t T = history_[l].size(1), B = history_[l].size(0);
    const Tensor age = at::arange(T - K, T + 1, at::kLong).unsqueeze(1) - at::arange(T, at::kLong);
    const Tensor past = (age >= 1).expand({B, -1, -1});
    if (v_.method == "fixed_span") return past & (age <= span_limit());
    return past & (1 + (spans_[l].unsqueeze(1) - age) / number("ramp") > 0);
  }

  int64_t initial() const { return initial_; }

 private:
  std::string setting(const std::string& name, const std::string& otherwise) const {
    const auto found = v_.settings.find(name);
    return found != v_.settings.end() ? found->second : otherwise;
  }
  double number(const std::string& name, const char* otherwise = "1") const {
    return std::stod(setting(name, otherwise));
  }
  double span_limit() const { return v_.evaluated_span > 0 ? v_.evaluated_span : number("max_span"); }

  Tensor norm(const Tensor& x, const std::string& name) {
    return at::layer_norm(x, {x.size(-1)}, p_[name + ".weight"], p_[name + ".bias"], 1e-5);
  }

  Tensor layer(const Tensor& h, int64_t l, double uniform, Tensor& cost) {
    const std::string name = "layers." + std::to_string(l) + ".";
    history_[l] = lapse::cat({history_[l].detach(), h}, 1);
    const Tensor x = pre_ ? norm(history_[l], name + "norm1") : history_[l];
    const Tensor u = h + attend(x, h.size(1), l, uniform, cost);
    const Tensor v = pre_ ? u : norm(u, name + "norm1");
    const Tensor inner =
        at::relu(at::linear(pre_ ? norm(v, name + "norm2") : v, p_[name + "ff1.weight"], p_[name + "ff1.bias"]));
    const Tensor out = v + at::linear(inner, p_[name + "ff2.weight"], p_[name + "ff2.bias"]);
    return pre_ ? out : norm(out, name + "norm2");
  }

  Tensor attend(const Tensor& x, int64_t K, int64_t l, double uniform, Tensor& cost) {
    const std::string name = "layers." + std::to_string(l) + ".";
    const int64_t B = x.size(0), T = x.size(1);
    auto heads = [&](const Tensor& y, const std::string& map) {
      return at::linear(y, p_[name + map]).view({B, -1, 3, 4}).transpose(1, 2);
    };
    const Tensor q = heads(x.narrow(1, T - K, K), "query"), k = heads(x, "key"), v = heads(x, "value");
    const Tensor age = at::arange(T - K, T, at::kLong).unsqueeze(1) - at::arange(T, at::kLong);
    const int64_t P = p_["position"].size(0);
    const Tensor with_position = ((age >= 1) & (age <= P)).to(at::kDouble);
    const Tensor position = p_["position"].index_select(0, (age.clamp(1, P) - 1).flatten()).view({K, T, 4});
    const Tensor by_age = at::einsum("bhkd,ktd->bhkt", {q, position * with_position.unsqueeze(2)});
    const Tensor weight = at::exp((at::matmul(q, k.transpose(2, 3)) + by_age) / 2);  // sqrt(D) = 2
    const Tensor a = mask(weight, x, age, K, l, uniform, cost);
    return at::linear(at::matmul(a, v).transpose(1, 2).reshape({B, K, 12}), p_[name + "out"]);
  }

  /// a' of exp(logits) [B, H, K, T].
  Tensor mask(const Tensor& weight, const Tensor& x, const Tensor& age, int64_t K, int64_t l, double uniform,
              Tensor& cost) {
    const Tensor past = age >= 1;
    auto softmax = [&](const Tensor& seen) {
      const Tensor w = weight * seen.to(at::kDouble);
      return w / w.sum(3, true).clamp_min(1e-300);
    };
    if (v_.method == "fixed_span") return softmax(past & (age <= span_limit()));

    const std::string name = "layers." + std::to_string(l) + ".span.";
    const double c = number("divisor"), R = number("ramp"), L = number("max_span");
    const Tensor wx = at::matmul(x, p_[name + "weight"]), b = p_[name + "bias"];
    Tensor e = L * at::sigmoid(setting("divide", "input") == "all" ? (wx + b) / c : wx / c + b);
    if (v_.evaluated_span > 0) e = e.clamp_max(span_limit());
    spans_[l] = e.detach();
    const bool at_creation = setting("loss_at", "ramp") == "creation";
    if (at_creation) cost = cost + number("loss") / K * e.narrow(1, x.size(1) - K, K).sum() / x.size(0);
    if (setting("random_drop", "false") == "true") e = e.clamp_max(uniform * L);
    const Tensor r = e.unsqueeze(1) - age, m = (1 + r / R).clamp(0, 1) * past.to(at::kDouble);
    const Tensor on_ramp = (m > 0) & (m < 1) & past;
    if (!at_creation) cost = cost + number("loss") / (R * K) * (r * on_ramp.to(at::kDouble)).sum() / x.size(0);
    const Tensor w = softmax((m > 0).unsqueeze(1)) * m.unsqueeze(1);
    return w / (w.sum(3, true) + 1e-8);
  }

  const Variant v_;
  const bool pre_;
  int64_t initial_;
  std::map<std::string, Tensor> p_;
  std::vector<Tensor> history_;  // per layer: inputs of all timesteps, [B, T, width]
  std::vector<Tensor> spans_;    // per layer: [B, T]
};

class DenseOracle : public testing::TestWithParam<Variant> {
  const Threads one_{1};
};
INSTANTIATE_TEST_SUITE_P(Variants, DenseOracle, testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });

constexpr double kUniform[] = {0.9, 0.35, 0.6, 0.1, 0.75, 0.45};

bool ragged(const ModelMemory& memory) {
  for (const auto& table : memory.layers)
    for (int64_t b = 1; b < table.samples(); ++b)
      if (table.rows_of(b) != table.rows_of(0)) return true;
  return false;
}

std::map<std::string, Tensor> gradients(Transformer& model, const Tensor& loss) {
  for (auto& [name, tensor] : model.parameters()) tensor->mutable_grad() = Tensor();
  loss.backward();
  std::map<std::string, Tensor> all;
  for (auto& [name, tensor] : model.parameters())
    all[name] = tensor->grad().defined() ? tensor->grad().clone() : at::zeros_like(*tensor);
  return all;
}

// float64 sums of some tens of terms in two layers: 1e-10 is far above rounding and far below any term left out.
constexpr double kTolerance = 1e-10;

TEST_P(DenseOracle, AgreesInTrainingWithCostsAndGradients) {
  const auto model = tiny_model(tiny_config(GetParam().norm), *options_of(GetParam()), at::kDouble);
  DenseModel dense(GetParam(), *model);
  const bool learns_spans = GetParam().method == "expire_span";
  ModelMemory memory = model->begin(3, Stored::inputs);
  for (int64_t i = 0; i < 6; ++i) {
    const Tensor tokens = random_tokens(3, kBlock, i), targets = random_tokens(3, kBlock, 100 + i).flatten();
    const auto y = model->forward(tokens, memory, {}, {.uniform = kUniform[i]});
    const auto z = dense.forward(tokens, kUniform[i]);
    EXPECT_LE(difference(y.logits, z.logits), kTolerance) << "block " << i;
    EXPECT_LE(difference(y.cost, z.cost), kTolerance) << "block " << i;
    EXPECT_EQ(z.cost.item<double>() != 0, learns_spans);
    auto loss = [&](const Tensor& logits, const Tensor& cost) {
      return at::nll_loss(at::log_softmax(logits.flatten(0, 1), 1), targets) + cost;
    };
    const auto ours = gradients(*model, loss(y.logits, y.cost)), theirs = gradients(*model, loss(z.logits, z.cost));
    for (const auto& [name, gradient] : theirs) {
      // The first block of an empty memory reads only itself; every parameter matters from then on.
      EXPECT_TRUE(i == 0 || gradient.abs().max().item<double>() > 1e-8) << name;
      EXPECT_LE(difference(ours.at(name), gradient), kTolerance) << name << " in block " << i;
    }
  }
  EXPECT_EQ(ragged(memory), learns_spans);  // the samples have lost different rows, and it does not matter
}

TEST_P(DenseOracle, AgreesInEvaluation) {
  const auto model = tiny_model(tiny_config(GetParam().norm), *options_of(GetParam()), at::kDouble);
  DenseModel dense(GetParam(), *model);
  at::NoGradGuard no_grad;
  ModelMemory memory = model->begin(3, Stored::projections);
  for (int64_t K : {8, 5, 1, 1, 16, 2, 1, 13, 1}) {
    const Tensor tokens = random_tokens(3, K, K);
    const auto y = model->forward(tokens, memory, {});
    EXPECT_LE(difference(y.logits, dense.forward(tokens, 1).logits), kTolerance);
  }
}

// Counted from the masks: |C_t| of each query; and rows that the block's queries could read, but no later one.
TEST_P(DenseOracle, CountsTheReportedMemories) {
  const auto model = tiny_model(tiny_config(GetParam().norm), *options_of(GetParam()), at::kDouble);
  at::NoGradGuard no_grad;
  for (bool training : {true, false}) {
    DenseModel dense(GetParam(), *model);
    ModelMemory memory = model->begin(3, stored_of(training));
    Tensor readable[2];  // before the block, [B, T]
    for (auto& mask : readable) mask = at::ones({3, dense.initial()}, at::kBool);
    for (int64_t K : {8, 5, 1, 1, 1, 16, 2, 1, 13, 1}) {
      const Tensor tokens = random_tokens(3, K, K);
      const auto y = model->forward(tokens, memory, {.observe = true});
      dense.forward(tokens, 1);
      ASSERT_EQ(y.reports.size(), 2u);
      for (int64_t l = 0; l < 2; ++l) {
        const Tensor visible = dense.visible(l, K), sizes = visible.narrow(1, 0, K).sum(2).to(at::kDouble);
        EXPECT_DOUBLE_EQ(y.reports[l].memory_mean(), sizes.mean().item<double>());
        EXPECT_EQ(y.reports[l].memory_max, sizes.max().item<double>());
        const Tensor could = at::constant_pad_nd(readable[l], {0, K}, 1), can = visible.select(1, K) & could;
        const auto total = could.sum().item<int64_t>();
        EXPECT_EQ(y.reports[l].readable, total) << "K " << K;
        EXPECT_EQ(y.reports[l].deleted, total - can.sum().item<int64_t>()) << "K " << K;
        readable[l] = can;
      }
    }
  }
}

// Saturated spans are whole numbers, at which m reaches 0 exactly: age L + R is not read, not counted, and deleted.
TEST(SpansAtTheirLimit, AreCountedAndDeletedToTheTimestep) {
  const auto options = method_options("expire_span", {{"max_span", "9"}, {"ramp", "4"}});
  for (auto type : {at::kFloat, at::kDouble}) {
    const auto model = tiny_model(tiny_config("post"), *options, type);
    for (auto& [name, tensor] : model->parameters())
      if (name.ends_with("span.bias")) tensor->detach().fill_(60);
    at::NoGradGuard no_grad;
    ModelMemory memory = model->begin(2, Stored::inputs);
    for (int64_t i = 0; i < 4; ++i) {
      const auto y = model->forward(random_tokens(2, kBlock, i), memory, {.observe = true});
      for (const auto& report : y.reports) {
        EXPECT_TRUE(report.told.at("span").equal(at::full({2, kBlock}, 9., type)));
        EXPECT_EQ(report.memory_max, std::min<double>(9 + 4 - 1, kBlock * (i + 1) - 1));
      }
    }
    for (const auto& table : memory.layers) EXPECT_EQ(table.rows(), 2 * (9 + 4 - 1));
  }
}

}  // namespace
}  // namespace lapse
