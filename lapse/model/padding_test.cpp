// Padding on the right changes nothing: a padded batch is worth what its samples are alone, for every method.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr int64_t kLongest = 24;
constexpr int64_t kSamples = 4;
using Lengths = std::vector<int64_t>;
const std::vector<Lengths> kLengths = {{kLongest, 9, 1, 17}, {23, kLongest, 22, kLongest}};  // much padding, and little

struct Padded {
  std::string method;
  Settings settings;
};

std::vector<Padded> cases() {
  std::vector<Padded> all = {{"expire_span", {{"loss_at", "creation"}}},
                             {"expire_span", {{"initial_memory", "zeros"}}}};
  for (const auto& entry : method_table()) all.push_back({entry.name, {{"memory_loss", "0.1"}}});
  return all;
}

/// What reading a batch gives.
struct Read {
  Tensor nats, cost;
  std::vector<Tensor> gradients;
  std::vector<LayerReport> reports;
};

Read read(Transformer& model, bool training, const Tensor& tokens, const Tensor& target, const Tensor& lengths) {
  for (auto& [name, tensor] : model.parameters()) tensor->mutable_grad() = Tensor();
  at::AutoGradMode gradients(training);
  ModelMemory memory = model.begin(tokens.size(0), stored_of(training));
  auto y = model.forward(tokens, memory, {.observe = true, .exact = true, .lengths = lengths, .target = target});
  Read all{y.likelihood.nats, y.cost, {}, std::move(y.reports)};
  if (!training) return all;
  (all.nats + all.cost * tokens.size(0)).backward();
  for (auto& [name, tensor] : model.parameters())
    all.gradients.push_back(tensor->grad().defined() ? tensor->grad().clone() : at::zeros_like(*tensor).detach());
  return all;
}

/// The samples one by one, without padding: sums over them.
Read alone(Transformer& model, bool training, const Tensor& tokens, const Lengths& lengths) {
  Read all;
  for (int64_t b = 0; b < kSamples; ++b) {
    const Tensor own = tokens.narrow(0, b, 1);
    Read one = read(model, training, own.narrow(1, 0, lengths[b]), own.narrow(1, 1, lengths[b]), {});
    if (b == 0) {
      all = std::move(one);
      continue;
    }
    all.nats = all.nats + one.nats, all.cost = all.cost + one.cost;
    for (size_t i = 0; i < one.gradients.size(); ++i) all.gradients[i] += one.gradients[i];
    for (size_t l = 0; l < one.reports.size(); ++l) {
      all.reports[l].memory_sum += one.reports[l].memory_sum, all.reports[l].queries += one.reports[l].queries;
      all.reports[l].readable += one.reports[l].readable;
      all.reports[l].memory_max = std::max(all.reports[l].memory_max, one.reports[l].memory_max);
    }
  }
  return all;
}

/// The batch with `width` tokens a sample, padding of the given token included.
Read padded(Transformer& model, bool training, const Tensor& tokens, const Lengths& of, int64_t width,
            int64_t padding) {
  const Tensor lengths = at::tensor(of, at::kLong);
  const Tensor beyond = at::arange(width, at::kLong) >= lengths.unsqueeze(1);
  return read(model, training, tokens.narrow(1, 0, width).masked_fill(beyond, padding),
              tokens.narrow(1, 1, width).masked_fill(beyond, kNoTarget), lengths);
}

void expect_as_alone(Transformer& model, bool training, const Tensor& tokens, const Lengths& lengths,
                     double tolerance) {
  const Read expected = alone(model, training, tokens, lengths);
  const Read first = padded(model, training, tokens, lengths, kLongest, 0);
  const Read other = padded(model, training, tokens, lengths, kLongest, 7);
  const Read wider = padded(model, training, tokens, lengths, kLongest + 5, 0);
  for (const Read* got : {&first, &wider}) {
    EXPECT_LE(difference(got->nats, expected.nats), tolerance);
    EXPECT_LE(difference(got->cost * kSamples, expected.cost), tolerance);
    for (size_t i = 0; i < expected.gradients.size(); ++i)
      EXPECT_LE(difference(got->gradients[i], expected.gradients[i]), 10 * tolerance) << i;
    for (size_t l = 0; l < expected.reports.size(); ++l) {
      EXPECT_EQ(got->reports[l].memory_sum, expected.reports[l].memory_sum);
      EXPECT_EQ(got->reports[l].memory_max, expected.reports[l].memory_max);
      EXPECT_EQ(got->reports[l].queries, expected.reports[l].queries);
      // For lines of training. Of these more may be deleted: those that end while the padding lasts.
      if (training) {
        EXPECT_EQ(got->reports[l].readable, expected.reports[l].readable);
      }
      for (const auto& [name, values] : got->reports[l].told) {
        const Tensor width = at::arange(values.size(1), at::kLong);
        EXPECT_TRUE(at::equal(values.isnan(), width >= at::tensor(lengths, at::kLong).unsqueeze(1))) << name;
      }
    }
  }
  EXPECT_TRUE(at::equal(first.nats, other.nats));
  EXPECT_TRUE(at::equal(first.cost, other.cost));
  for (size_t i = 0; i < first.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(first.gradients[i], other.gradients[i])) << i;
}

TEST(Padding, ChangesNothing) {
  const Tensor tokens = random_tokens(kSamples, kLongest + 8, 3);
  for (const auto& [method, settings] : cases())
    for (const std::string norm : {"pre", "post"})
      for (const bool training : {true, false})
        for (const auto type : {at::kDouble, at::kFloat})
          for (const Lengths& lengths : kLengths) {
            SCOPED_TRACE(method + ", " + norm + (training ? ", training, " : ", reading, ") + c10::toString(type));
            const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;  // sums of thousands of roundings
            const auto model = tiny_model(tiny_config(norm), *method_options(method, settings), type);
            expect_as_alone(*model, training, tokens, lengths, tolerance);
          }
}

// As agents are evaluated, each step saying how many of a stream's tokens are none: what padding hides in one block is
// there for the next. A budget that is never reached changes nothing, a smaller one is kept.
TEST(Padding, HidesRowsForItsOwnBlockAlone) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kSteps = 20;
  const Tensor tokens = random_tokens(kSamples, kSteps, 3);
  for (const auto& entry : method_table())
    for (const int64_t budget : {0, 1000, 6}) {
      SCOPED_TRACE(entry.name + ", budget " + std::to_string(budget));
      const Settings settings = budget > 0 ? Settings{{"budget", std::to_string(budget)}} : Settings{};
      const auto options = method_options(entry.name, settings);
      set_fields(options->reading_fields(), settings);
      const auto model = tiny_model(tiny_config("pre"), *options, at::kFloat);
      const auto read = [&](bool told) {
        ModelMemory memory = model->begin(kSamples, Stored::projections);
        std::vector<double> all;
        for (int64_t t = 0; t < kSteps; ++t) {
          const BlockOptions how{.observe = true, .lengths = told ? at::ones({kSamples}, at::kLong) : Tensor()};
          const auto y = model->forward(tokens.narrow(1, t, 1), memory, how);
          all.push_back(y.logits.abs().sum().item<double>());
          for (const auto& report : y.reports) all.push_back(report.memory_sum);
        }
        return all;
      };
      EXPECT_EQ(read(true), read(false));
    }
}

}  // namespace
}  // namespace lapse
