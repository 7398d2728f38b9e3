// selective_attention against its formulas and their derivatives, the golden file, and what its contract promises.
#include "lapse/ops/attention/selective/selective_attention.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "lapse/core/golden_testing.h"
#include "lapse/core/safetensors.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/selective/selective_testing.h"

namespace lapse {
namespace {

using at::Tensor;

struct Implementation {
  const char* name;
  SelectiveOutputs (*forward)(const AttentionInputs&, const SelectiveOptions&);
  SelectiveGradients (*backward)(const Tensor&, const Tensor&, const AttentionInputs&, const SelectiveOptions&,
                                 const SelectiveOutputs&);
};
const Implementation kImplementations[] = {
    {"operator", selective_attention, selective_attention_backward},
    {"reference", selective_attention_reference, selective_attention_backward_reference}};

class SelectiveAttention : public testing::TestWithParam<std::tuple<Implementation, at::ScalarType>> {};

/// In float64, by a backward pass that reads this `out`.
Tensor age_bias_gradient(const SelectiveCase& exact, const Tensor& out, const Tensor& grad, const Tensor& grad_memory) {
  const at::NoGradGuard no_grad;
  auto y = selective_attention_reference(exact.inputs, exact.options);
  y.out = out.to(at::kDouble);
  return selective_attention_backward_reference(grad.to(at::kDouble), grad_memory, exact.inputs, exact.options, y)
      .age_bias;
}

TEST_P(SelectiveAttention, AgreesWithTheFormulasAndTheirDerivatives) {
  const Threads one(1);
  const auto& [implementation, type] = GetParam();
  // float64: 1e-16 times the number of terms and the size of exponents. float32 the same with 6e-8; what it is compared
  // with reads the same rounded inputs. bfloat16 rounds outputs, weights and their gradients to 2^-9, which sums over
  // rows and, through F, over later queries add up.
  const double wide = type == at::kDouble ? 1e-12 : 1e-5, narrow = type == at::kBFloat16 ? 0.05 : wide;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const SelectiveCase given = converted(small_selective_case(seed), type);
    SelectiveCase exact = converted(given, at::kDouble);
    SCOPED_TRACE(given.text);
    Random random(seed, "incoming");
    const Tensor grad_out = random_normal(given.inputs.q.sizes(), random).to(type);
    const Tensor grad_memory = random_normal({given.inputs.q.size(0), given.inputs.q.size(1)}, random);
    const auto y = implementation.forward(given.inputs, given.options);
    const auto g = implementation.backward(grad_out, grad_memory, given.inputs, given.options, y);
    for (auto& [name, leaf] : leaves_of(exact)) leaf.requires_grad_(true);
    const auto z = naive_selective_attention(exact.inputs, exact.options);
    EXPECT_EQ(y.out.scalar_type(), type);
    EXPECT_LE(error_between(y.out, z.out), narrow);
    EXPECT_LE(error_between(y.memory, z.memory), wide);
    EXPECT_LE(error_between(y.stats, z.stats), wide);
    EXPECT_LE(error_between(y.masking, z.masking), wide);
    ((z.out * grad_out).sum() + (z.memory * grad_memory).sum()).backward();
    const std::map<std::string, Tensor> gradients = {{"q", g.q},
                                                     {"k", g.k},
                                                     {"v", g.v},
                                                     {"select_q", g.select_q},
                                                     {"select_k", g.select_k},
                                                     {"position", g.position},
                                                     {"age_bias", g.age_bias}};
    for (auto& [name, leaf] : leaves_of(exact)) {
      Tensor expected = leaf.grad().defined() ? leaf.grad().nan_to_num(0) : at::zeros_like(leaf);
      // In this sum over all queries their logits cancel but for the rounding of `out`: it is compared for the same
      // out.
      if (name == "age_bias" && type == at::kBFloat16)
        expected = age_bias_gradient(exact, y.out, grad_out, grad_memory);
      EXPECT_LE(error_between(gradients.at(name), expected), narrow) << name;
    }
    if (HasFailure()) return;
  }
}

std::string case_name(const testing::TestParamInfo<SelectiveAttention::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + at::toString(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, SelectiveAttention,
                         testing::Combine(testing::ValuesIn(kImplementations),
                                          testing::Values(at::kDouble, at::kFloat, at::kBFloat16)),
                         case_name);

// Else the test above could pass by drawing nothing of interest.
TEST(SelectiveAttentionCases, CoverTheCorners) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto [x, o, text] = small_selective_case(seed);
    const auto y = naive_selective_attention(x, o);
    seen["sample without rows"] += (x.offsets.diff() == 0).any().item<bool>();
    seen["spare rows"] += x.offsets[-1].item<int64_t>() < x.k.size(0);
    seen["one query"] += x.q.size(1) == 1;
    seen["query that sees nothing"] += (y.stats == -INFINITY).any().item<bool>();
    seen["memory at the cap"] += (y.masking > o.cap).any().item<bool>();
    seen["memory below the cap"] += (y.memory > 0).any().item<bool>();
    seen["masking"] += o.masking.has_value();
    seen["until"] += x.until.has_value();
    seen["first rows"] += o.first && o.first->any().item<bool>();
    seen["select"] += o.select_q.has_value();
    seen["position"] += o.position.has_value();
    seen["shared keys"] += x.k.size(1) < x.q.size(2);
    seen["scale"] += o.scale.has_value();
    seen["age bias"] += o.age_bias.has_value();
    seen["window"] += o.max_age < 100;
    seen["dropout"] += o.dropout > 0;
    seen["no shift"] += !o.shift;
    seen["first can be masked"] += o.mask_first;
    seen["self can be masked"] += o.mask_self;
    seen["no relu"] += !o.relu;
  }
  for (const auto& [what, count] : seen) EXPECT_GE(count, 5) << what;
}

/// A [B, H, N, D] tensor of the golden file as packed rows, and q.
Tensor packed(const Tensor& x) { return x.transpose(1, 2).flatten(0, 1).contiguous(); }

TEST(SelectiveAttentionGolden, AgreesWithTheFile) {
  const fs::path path = golden_file("selective_attention");
  if (!fs::exists(path)) GTEST_SKIP() << no_golden_file(path);
  const SafetensorsFile file(path);
  auto tensor = [&](const std::string& name) {
    const TensorEntry& entry = file.tensor(name);
    return at::from_blob(const_cast<char*>(entry.bytes.data()), entry.shape,
                         entry.dtype == "F64" ? at::kDouble : at::kLong)
        .clone();
  };
  const Tensor all_q = tensor("q");
  const int64_t B = all_q.size(0), H = all_q.size(1), N = all_q.size(2), D = all_q.size(3);
  AttentionInputs x = {
      all_q.transpose(1, 2).contiguous(), packed(tensor("k")),       packed(tensor("v")),
      at::arange(B + 1, at::kLong) * N,   at::zeros({B}, at::kLong), at::arange(N, at::kLong).repeat({B})};
  for (Tensor* leaf : {&x.q, &x.k, &x.v}) leaf->requires_grad_(true);
  constexpr double kTolerance = 1e-13;
  auto turned = [&](const Tensor& t) { return t.view({B, N, H, D}).transpose(1, 2); };
  SelectiveOptions o;
  o.first = x.time == 0;
  const auto y = selective_attention(x, o);
  EXPECT_LE(error_between(turned(y.out), tensor("out")), kTolerance);
  EXPECT_LE(error_between(y.memory, tensor("memory_per_token")), kTolerance);
  const Tensor largest = y.memory.amax(1).mean();
  EXPECT_LE(error_between(largest, tensor("memory_max").squeeze()), kTolerance);
  ((turned(y.out) * tensor("weight")).sum() + 0.1 * largest / N).backward();
  EXPECT_LE(error_between(turned(x.q.grad()), tensor("grad_q")), kTolerance);
  EXPECT_LE(error_between(turned(x.k.grad()), tensor("grad_k")), kTolerance);
  EXPECT_LE(error_between(turned(x.v.grad()), tensor("grad_v")), kTolerance);

  at::NoGradGuard no_grad;
  o.shift = false;
  EXPECT_LE(error_between(turned(selective_attention(x, o).out), tensor("out_no_shift")), kTolerance);
  o.shift = true, o.mask_first = true;
  EXPECT_LE(error_between(turned(selective_attention(x, o).out), tensor("out_mask_bos")), kTolerance);
  o.mask_first = false, o.mask_self = true;
  EXPECT_LE(error_between(turned(selective_attention(x, o).out), tensor("out_mask_self")), kTolerance);
  o.mask_self = false;
  const Tensor query = at::arange(N, at::kLong).unsqueeze(1), past = at::arange(N, at::kLong) <= query;
  for (int64_t budget : {24, 16, 8, 4}) {
    const std::string number = std::to_string(budget);
    x.until.reset();
    x.until = selective_prune(x, o, budget);
    const Tensor held = at::logical_and(x.until->view({B, 1, N}) > query, past).to(at::kLong);
    EXPECT_TRUE(held.equal(tensor("held." + number))) << budget;
    EXPECT_LE(error_between(turned(selective_attention(x, o).out), tensor("out_budget." + number)), kTolerance);
  }
}

/// Queries from ... to - 1 of a case whose samples' rows are as many consecutive ones, those of the block included.
SelectiveCase block_of(const SelectiveCase& all, int64_t from, int64_t to, const Tensor& masking, const Tensor& until) {
  const int64_t B = all.inputs.q.size(0), n = all.inputs.k.size(0) / B, K = all.inputs.q.size(1), rows = n - K + to;
  auto first = [&](const Tensor& x) { return x.view({B, n, -1}).narrow(1, 0, rows).reshape({B * rows, -1}); };
  SelectiveCase c = all;
  c.inputs.q = all.inputs.q.narrow(1, from, to - from);
  c.inputs.k = first(all.inputs.k).view({B * rows, all.inputs.k.size(1), -1});
  c.inputs.v = first(all.inputs.v).view({B * rows, all.inputs.k.size(1), -1});
  c.inputs.offsets = at::arange(B + 1, at::kLong) * rows;
  c.inputs.start = all.inputs.start + from;
  c.inputs.time = first(all.inputs.time).view({-1});
  c.options.masking = first(masking).view({-1});
  c.options.first = first(*all.options.first).view({-1});
  c.inputs.until = first(until).view({-1});
  return c;
}

// Decoding step by step gives what one pass over everything gives: outputs, what is dropped, and the masking left.
TEST(SelectiveAttentionBlocks, AgreeWithAllAtOnce) {
  for (at::ScalarType type : {at::kDouble, at::kFloat})
    for (int64_t step : {1, 3, 16, 50}) {
      Random random(step, "blocks");
      const int64_t B = 2, K = 50, H = 2, D = 8, before = 6, n = before + K, budget = 12;
      SelectiveCase all;
      all.inputs = {random_normal({B, K, H, D}, random).to(type),
                    random_normal({B * n, H, D}, random).to(type),
                    random_normal({B * n, H, D}, random).to(type),
                    at::arange(B + 1, at::kLong) * n,
                    at::full({B}, before, at::kLong),
                    at::arange(n, at::kLong).repeat({B})};
      all.options.masking = random_normal({B * n}, random).abs().to(type);
      all.options.masking->view({B, n}).narrow(1, before, K).zero_();
      all.options.first = all.inputs.time == 0;
      all.inputs.until = selective_prune(all.inputs, all.options, budget);
      const auto y = selective_attention(all.inputs, all.options);

      Tensor masking = all.options.masking->clone(), until = at::full({B * n}, int64_t{1} << 60, at::kLong);
      std::vector<Tensor> out, memory;
      for (int64_t from = 0; from < K; from += step) {
        const int64_t to = std::min(from + step, K), rows = before + to;
        SelectiveCase block = block_of(all, from, to, masking, until);
        block.inputs.until = selective_prune(block.inputs, block.options, budget);
        const auto z = selective_attention(block.inputs, block.options);
        out.push_back(z.out), memory.push_back(z.memory);
        masking.view({B, n}).narrow(1, 0, rows).copy_(z.masking.view({B, rows}));
        until.view({B, n}).narrow(1, 0, rows).copy_(block.inputs.until->view({B, rows}));
      }
      const double tolerance = type == at::kDouble ? 1e-13 : 2e-6;
      EXPECT_LE(error_between(lapse::cat(out, 1), y.out), tolerance) << step;
      EXPECT_LE(error_between(lapse::cat(memory, 1), y.memory), tolerance) << step;
      EXPECT_LE(error_between(masking, y.masking), tolerance) << step;
      EXPECT_TRUE(until.clamp_max(1000).equal(all.inputs.until->clamp_max(1000))) << step;
      EXPECT_GT((until < 1000).sum().item<int64_t>(), 50);
    }
}

TEST(SelectiveAttentionForward, TakesStridedAndExpandedTensors) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const SelectiveCase plain = converted(small_selective_case(seed), seed % 2 ? at::kFloat : at::kDouble);
    if (plain.inputs.k.size(0) == 0) continue;
    SelectiveCase strided = plain, same = plain;
    auto& x = strided.inputs;
    auto twice = [](const Tensor& values) { return at::stack({values, values}, 1).select(1, 1); };
    x.q = x.q.transpose(1, 2).contiguous().transpose(1, 2);
    x.k = lapse::cat({x.k, x.k}, 2).narrow(2, 0, x.k.size(2));
    x.v = x.v.select(0, one_row(x)).expand_as(x.v);
    x.start = twice(x.start), x.time = twice(x.time);
    for (auto* t : {&x.until, &strided.options.masking, &strided.options.first, &strided.options.select_q,
                    &strided.options.select_k, &strided.options.position, &strided.options.age_bias})
      if (*t) *t = twice(**t);
    same.inputs.v = x.v.contiguous();
    // Products of other strides may sum in another order.
    const double tolerance = seed % 2 ? 2e-6 : 1e-14;
    const auto y = selective_attention(x, strided.options), z = selective_attention(same.inputs, same.options);
    const Tensor grad = at::ones({1}, y.out.options()).expand_as(y.out),
                 sum = at::ones({1}, y.memory.options()).expand_as(y.memory);
    const auto g = selective_attention_backward(grad, sum, x, strided.options, y);
    const auto f = selective_attention_backward(grad.contiguous(), sum.contiguous(), same.inputs, same.options, z);
    const std::pair<Tensor, Tensor> pairs[] = {{y.out, z.out},
                                               {y.memory, z.memory},
                                               {y.masking, z.masking},
                                               {g.q, f.q},
                                               {g.k, f.k},
                                               {g.v, f.v},
                                               {g.select_q, f.select_q},
                                               {g.select_k, f.select_k},
                                               {g.position, f.position},
                                               {g.age_bias, f.age_bias}};
    for (const auto& [got, expected] : pairs) EXPECT_LE(error_between(got, expected), tolerance) << plain.text;
    EXPECT_TRUE(selective_prune(x, strided.options, 5).equal(selective_prune(same.inputs, same.options, 5)));
  }
}

TEST(SelectiveAttentionForward, ShapesAreInferredWithoutData) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto [x, o, text] = converted(small_selective_case(seed), at::kBFloat16);
    const auto y = selective_attention(x, o);
    const auto g = selective_attention_backward(y.out, y.memory, x, o, y);
    auto to_meta = [](std::optional<Tensor>& t) {
      if (t) t = t->to(at::kMeta);
    };
    for (Tensor* t : {&x.q, &x.k, &x.v, &x.offsets, &x.start, &x.time}) *t = t->to(at::kMeta);
    for (auto* t : {&x.until, &o.masking, &o.first, &o.select_q, &o.select_k, &o.position, &o.age_bias}) to_meta(*t);
    const auto z = selective_attention(x, o);
    const auto f = selective_attention_backward(z.out, z.memory, x, o, z);
    const std::pair<Tensor, Tensor> pairs[] = {{y.out, z.out},
                                               {y.memory, z.memory},
                                               {y.masking, z.masking},
                                               {y.stats, z.stats},
                                               {g.q, f.q},
                                               {g.k, f.k},
                                               {g.select_q, f.select_q},
                                               {g.position, f.position},
                                               {g.select_k, f.select_k},
                                               {g.age_bias, f.age_bias}};
    for (const auto& [real, meta] : pairs) {
      EXPECT_EQ(real.sizes(), meta.sizes()) << text;
      EXPECT_EQ(real.scalar_type(), meta.scalar_type()) << text;
    }
  }
}

TEST(SelectiveAttentionErrors, NameTheInput) {
  const SelectiveCase c = small_selective_case(1);
  auto error = [&](const auto& change) {
    SelectiveCase bad = c;
    change(bad.inputs, bad.options);
    return torch_error_of([&] { selective_attention(bad.inputs, bad.options); });
  };
  using X = AttentionInputs;
  using O = SelectiveOptions;
  EXPECT_EQ(error([](X&, O&) {}), "");
  EXPECT_NE(error([](X& x, O&) { x.q = x.q[0]; }).find("q must be"), std::string::npos);
  EXPECT_NE(error([](X& x, O&) { x.v = x.v.narrow(0, 0, 1); }).find("v must have"), std::string::npos);
  EXPECT_NE(error([](X& x, O&) { x.q = x.q.narrow(3, 0, 0); }).find("at least one feature a head"), std::string::npos);
  EXPECT_NE(error([](X& x, O&) { x.offsets = x.offsets + 1000; }).find("offsets must"), std::string::npos);
  EXPECT_NE(error([](X&, O& o) { o.masking = at::zeros({999}); }).find("masking must"), std::string::npos);
  EXPECT_NE(error([](X& x, O&) { x.until = at::zeros({1}); }).find("until must"), std::string::npos);
  EXPECT_NE(error([](X& x, O& o) { o.first = x.time; }).find("first must"), std::string::npos);
  EXPECT_NE(error([](X&, O& o) { o.max_age = -1; }).find("no later rows"), std::string::npos);
  EXPECT_NE(error([](X&, O& o) { o.age_bias = at::zeros({99, 1}); }).find("age_bias must"), std::string::npos);
  EXPECT_NE(error([](X&, O& o) { o.scale = -1; }).find("scale must"), std::string::npos);
  EXPECT_NE(error([](X&, O& o) { o.cap = 0; }).find("cap must"), std::string::npos);
  for (const auto type : {at::kFloat, at::kDouble})
    EXPECT_NE(error([&](X& x, O& o) {
                for (at::Tensor* one : {&x.q, &x.k, &x.v}) *one = one->to(type);
                o = {};
                o.select_q = o.select_k = at::zeros({2, 4});
              }).find("select_q must be"),
              std::string::npos);
  EXPECT_NE(error([](X& x, O& o) {
              o.select_q = at::zeros({x.q.size(0), x.q.size(1), 0}), o.select_k = at::zeros({x.k.size(0), 0});
            }).find("select_q must have at least one feature"),
            std::string::npos);
  EXPECT_NE(error([](X&, O& o) { o.dropout = 1; }).find("dropout must"), std::string::npos);
  EXPECT_NE(error([](X&, O& o) {
              o.select_q.reset(), o.select_k = at::zeros({1, 1});
            }).find("select_q and"),
            std::string::npos);
  EXPECT_NE(torch_error_of([&] { selective_prune(c.inputs, c.options, 0); }).find("budget"), std::string::npos);
}

}  // namespace
}  // namespace lapse
