// The operator selective_attention against eager PyTorch, libtorch's own causal attention without any selection, and,
// for one query, against ramp_attention.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <iostream>
#include <memory>

#include "bench/peak.h"
#include "bench/program.h"
#include "bench/report.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"
#include "lapse/ops/attention/ramp/ramp_attention.h"
#include "lapse/ops/attention/selective/selective_attention.h"

namespace lapse::bench {
namespace {

using at::Tensor;

struct Shape {
  int64_t samples, heads, rows, queries, head_dim = 64;
  at::ScalarType type = at::kFloat;
};

/// Streams from their first token on, of which the last queries are the block; random inputs and incoming gradients.
struct Problem {
  explicit Problem(const Shape& s) {
    at::manual_seed(1);
    const int64_t B = s.samples, N = B * s.rows;
    auto random = [&](at::IntArrayRef size) { return at::randn(size).to(s.type); };
    x = {random({B, s.queries, s.heads, s.head_dim}),
         random({N, s.heads, s.head_dim}),
         random({N, s.heads, s.head_dim}),
         at::arange(B + 1, at::kLong) * s.rows,
         at::full({B}, s.rows - s.queries, at::kLong),
         at::arange(s.rows, at::kLong).repeat({B})};
    o.first = x.time == 0;
    grad_out = random(x.q.sizes()), grad_memory = at::randn({B, s.queries}) / s.rows;
  }

  AttentionInputs x;
  SelectiveOptions o;
  Tensor grad_out, grad_memory;
};

/// 14 D per head and visible pair: two products forward, five backward with the one that recomputes. The work
/// of selection does not count. Forward alone: 4 D.
double flops_of(const Shape& s, bool backward) {
  const auto K = static_cast<double>(s.queries), n = static_cast<double>(s.rows);
  const double pairs = static_cast<double>(s.samples) * (K * (n - K) + K * (K + 1) / 2);
  return (backward ? 14. : 4.) * static_cast<double>(s.head_dim * s.heads) * pairs;
}

struct Fused {
  explicit Fused(const Shape& s) : p(s) {}
  void run() const {
    const at::NoGradGuard no_grad;
    const auto y = selective_attention(p.x, p.o);
    selective_attention_backward(p.grad_out, p.grad_memory, p.x, p.o, y);
  }
  Problem p;
};

struct Leaves {
  explicit Leaves(const Shape& s) {
    const Problem p(s);
    auto heads = [&](const Tensor& rows) {
      return rows.view({s.samples, s.rows, s.heads, s.head_dim})
          .transpose(1, 2)
          .detach()
          .clone()
          .set_requires_grad(true);
    };
    q = heads(p.x.q), k = heads(p.x.k), v = heads(p.x.v);
    grad_out = p.grad_out.transpose(1, 2), grad_memory = p.grad_memory;
  }
  void forget() {
    for (Tensor* leaf : {&q, &k, &v}) leaf->mutable_grad().reset();
  }
  Tensor q, k, v, grad_out, grad_memory;  // [B, H, N, D], [B, N]
};

/// The paper's formulas in plain ATen operators on dense tensors, with autograd; all rows are queries.
struct Eager {
  explicit Eager(const Shape& s) : x(s) {}
  void run() {
    x.forget();
    const int64_t N = x.q.size(2);
    const Tensor query = at::arange(N).unsqueeze(1), key = at::arange(N), future = key > query;
    const Tensor logits = at::matmul(x.q, x.k.transpose(2, 3)) / std::sqrt(static_cast<double>(x.q.size(3)));
    const Tensor spared = at::logical_or(key >= query, key == 0);
    const Tensor S = logits.select(1, 0).relu().masked_fill(spared, 0).to(at::kFloat);
    const Tensor F = at::constant_pad_nd(S.narrow(1, 0, N - 1).cumsum(1), {0, 0, 1, 0});
    const Tensor masked = (logits - F.unsqueeze(1).to(logits.scalar_type())).masked_fill(future, -INFINITY);
    out = at::matmul(at::softmax(masked, 3), x.v);
    memory = (1 - F.clamp_max(1)).masked_fill(future, 0).sum(2);
    torch::autograd::backward({out, memory}, {x.grad_out, x.grad_memory});
  }
  Leaves x;
  Tensor out, memory;
};

/// libtorch's fused causal attention at the same shapes: nothing is selected.
struct Sdpa {
  explicit Sdpa(const Shape& s) : x(s) {}
  void run() {
    x.forget();
    at::scaled_dot_product_attention(x.q, x.k, x.v, {}, 0, /*is_causal=*/true).backward(x.grad_out);
  }
  Leaves x;
};

/// The forward pass alone, with masking from earlier queries.
struct Forward {
  explicit Forward(const Shape& s) : p(s) { p.o.masking = at::rand({p.x.k.size(0)}); }
  void run() const {
    const at::NoGradGuard no_grad;
    selective_attention(p.x, p.o);
  }
  Problem p;
};

/// The same rows in the library's other operator, without spans.
struct Ramp {
  explicit Ramp(const Shape& s) : p(s) { o.min_age = 0; }
  void run() const {
    const at::NoGradGuard no_grad;
    ramp_attention(p.x, o);
  }
  Problem p;
  RampOptions o;
};

/// What is dropped when half of the rows may stay.
struct Prune {
  explicit Prune(const Shape& s) : p(s), budget(s.rows / 2) { p.o.masking = at::rand({p.x.k.size(0)}); }
  void run() const { selective_prune(p.x, p.o, budget); }
  Problem p;
  int64_t budget;
};

void require_close(const char* what, const Tensor& got, const Tensor& expected) {
  const double worst = (got - expected).abs().max().item<double>(), largest = expected.abs().max().item<double>();
  if (!(worst <= 1e-5 * largest))
    fail(fmt::format("the eager reference and the operator disagree on {}: by {:.3g} of {:.3g}", what, worst, largest));
}

void check_eager() {
  const Shape s{2, 3, 90, 90, 16};
  const Problem p(s);
  const auto y = selective_attention(p.x, p.o);
  const auto g = selective_attention_backward(p.grad_out, p.grad_memory, p.x, p.o, y);
  Eager eager(s);
  eager.run();
  auto rows = [](const Tensor& x) { return x.detach().transpose(1, 2); };
  require_close("the output", y.out, rows(eager.out));
  require_close("the memory", y.memory, eager.memory.detach());
  require_close("the gradient of q", g.q, rows(eager.x.q.grad()));
  require_close("the gradient of k", g.k, rows(eager.x.k.grad()).flatten(0, 1));
  require_close("the gradient of v", g.v, rows(eager.x.v.grad()).flatten(0, 1));
}

struct Case {
  std::string name, about;
  Shape shape;
  bool backward;
};

std::vector<Case> cases(bool quick) {
  const int64_t scale = quick ? 16 : 1, n = 1024 / scale;
  const std::string shape = "B 8, H 8, 1024 queries and rows, D 64, forward and backward";
  return {{"train", shape, {8, 8, n, n}, true},
          {"bf16", shape + ", bfloat16", {8, 8, n, n, 64, at::kBFloat16}, true},
          {"long", "B 4, H 8, 2048 queries and rows, D 64, forward and backward", {4, 8, 2 * n, 2 * n}, true},
          {"one", "B 1, the rest as in train", {1, 8, n, n}, true},
          {"decode", "B 8, H 8, one query, 1024 rows, D 64, forward", {8, 8, n, 1}, false},
          {"block", "B 8, H 8, 512 queries, 1024 rows, D 64, forward", {8, 8, n, n / 2}, false}};
}

template <class Runner>
Path path_of(const std::string& name, const Shape& shape, int64_t repeats) {
  auto prepare = [shape]() -> std::function<void()> {
    auto runner = std::make_shared<Runner>(shape);
    return [runner] { runner->run(); };
  };
  return {name, prepare, repeats, repeats > 1 ? 2 : 0};
}

std::vector<Path> paths_of(const Case& c, int64_t repeats) {
  if (c.backward)
    return {path_of<Fused>("fused", c.shape, repeats), path_of<Eager>("eager", c.shape, (repeats + 2) / 3),
            path_of<Sdpa>("sdpa", c.shape, repeats)};
  return {path_of<Forward>("fused", c.shape, repeats), path_of<Ramp>("ramp", c.shape, repeats),
          path_of<Prune>("prune", c.shape, repeats)};
}

struct Options {
  std::string only = "all";
  int64_t repeats = 15;

  std::vector<Case> chosen(const Common& common) const {
    std::vector<Case> some;
    for (auto& c : cases(common.quick))
      if ((only == "all" || only == c.name) && (common.quick || multiplies(c.shape.type))) some.push_back(c);
    return some;
  }
};

std::vector<Measured> measure(const Case& c, const Common& common, int64_t repeats) {
  note(fmt::format("measuring {}", c.name));
  const auto paths = paths_of(c, repeats);
  std::vector<Measured> all;
  for (const auto& path : paths) {
    Measured measured{path.name, path.name == "prune" ? 0 : flops_of(c.shape, c.backward), {}};
    if (c.backward && !(common.quick && c.name != "train")) {
      auto arguments = common.child_arguments(path.name);
      arguments.insert(arguments.end(), {"--case", c.name});
      measured.peak_memory = run_child(arguments)["peak_memory"];
    }
    all.push_back(measured);
  }
  const auto times = take_turns(paths);
  for (size_t i = 0; i < paths.size(); ++i) all[i].seconds = times[i];
  return all;
}

Json run(const Common& common, const Options& options) {
  check_eager();
  Peaks peaks(common.quick);
  const auto chosen = options.chosen(common);
  std::vector<std::vector<Measured>> measured;
  for (const auto& c : chosen) {
    peaks.measure(c.shape.type);
    measured.push_back(measure(c, common, common.quick ? 1 : options.repeats));
  }
  peaks.measure_again();
  std::cout << peaks.text();
  Json results = Json::array();
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Case& c = chosen[i];
    results.push_back({{"case", c.name},
                       {"about", c.about},
                       {"precision", type_name(c.shape.type)},
                       {"gflop", measured[i].front().flops * 1e-9},
                       {"paths", paths_json(measured[i], peaks.flops(c.shape.type))}});
    std::cout << fmt::format("\n{}: {}\n{}", c.name, c.about, paths_table(results.back()["paths"]));
  }
  return {{"peak", peaks.json()}, {"results", results}};
}

/// A few repeats of one path of one case.
void run_alone(const Common& common, const Options& options) {
  for (const auto& c : options.chosen(common))
    for (const auto& path : paths_of(c, 1))
      if (path.name == common.child) {
        const auto work = path.prepare();
        for (int i = 0; i < 3; ++i) work();
        return;
      }
  fail("there is no path " + common.child);
}

}  // namespace
}  // namespace lapse::bench

int main(int argc, char** argv) {
  using namespace lapse::bench;
  Options options;
  Program program{"selective", "Times the operators selective_attention and selective_prune; see bench/README.md"};
  program.add_options = [&](const Command& app) {
    std::vector<std::string> names = {"all"};
    for (const auto& c : cases(true)) names.push_back(c.name);
    app.add_option("--case", options.only, "what to measure").check(one_of(names)).shows_default();
    app.add_option("--repeat", options.repeats, "timed repeats of each path; eager a third")
        .check(whole_number(1, 10000))
        .shows_default();
  };
  program.run = [&](const Common& common) { return run(common, options); };
  program.child = [&](const Common& common) { run_alone(common, options); };
  return run_program(program, argc, argv);
}
