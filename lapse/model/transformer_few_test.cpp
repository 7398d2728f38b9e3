// A few tokens at a time, which layers read on plain memory, against whole blocks, for every form of the base model.
#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

/// Norm's place, norm, activation, biases.
class FewTokens : public testing::TestWithParam<std::tuple<std::string, std::string, std::string, bool>> {};

INSTANTIATE_TEST_SUITE_P(All, FewTokens,
                         testing::Combine(testing::Values("post", "pre"), testing::Values("layer", "rms"),
                                          testing::Values("relu", "gelu", "swiglu"), testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
                                  std::get<2>(info.param) + (std::get<3>(info.param) ? "_biases" : "");
                         });

TEST_P(FewTokens, AreReadAsBlocksAre) {
  ModelConfig config = tiny_config("post");
  std::tie(config.norm, config.norm_kind, config.activation, config.biases) = GetParam();
  config.normed_heads = config.norm_kind == "rms";
  const auto m = tiny_model(config, *method_options("expire_span"), at::kFloat);
  // Biases and norms start as 0 and 1, which would hide what forgets them.
  Random random(3, "parameters");
  for (auto& [name, tensor] : m->parameters())
    if (tensor->dim() == 1 && name.find("span") == std::string::npos)
      for (int64_t i = 0; i < tensor->numel(); ++i) tensor->detach()[i].add_(0.3 * random.normal());
  for (const int64_t streams : {1, 2, 5}) {  // up to 16 rows at a time, and more
    const at::Tensor tokens = random_tokens(streams, 24), whole = run(*m, false, tokens, {24});
    for (const int64_t length : {1, 2, 4}) {
      const std::vector<int64_t> lengths(24 / length, length);
      EXPECT_LE(difference(run(*m, false, tokens, lengths), whole), 1e-4) << streams << " x " << length;
    }
  }
}

TEST_P(FewTokens, AreChosenAfterAttentionAsWell) {
  ModelConfig config = tiny_config("post");
  std::tie(config.norm, config.norm_kind, config.activation, config.biases) = GetParam();
  const auto m = tiny_model(config, *method_options("expire_span"), at::kFloat);
  const at::Tensor tokens = random_tokens(3, 8);
  for (const auto& places : {at::tensor({0, 9, 23}, at::kLong), at::empty({0}, at::kLong)})
    for (const bool training : {false, true}) {
      at::AutoGradMode gradients(training);
      ModelMemory memory = m->begin(3, stored_of(training)), other = m->begin(3, stored_of(training));
      const auto got = m->forward(tokens, memory, {.places = places}).logits;
      const auto whole = m->forward(tokens, other, {}).logits;
      const auto expected = whole.flatten(0, 1).index_select(0, places);
      ASSERT_EQ(got.sizes(), expected.sizes());
      if (got.numel() > 0) {
        EXPECT_LE(difference(got.detach(), expected.detach()), 1e-4);
      }
      if (training) got.sum().backward();  // nothing scored is no error
    }
}

// A few rows' spans come from a loop of their own. They are not seen in the outputs alone: a row on the ramp has a
// share.
TEST(FewTokensOfExpireSpan, HaveTheSpansOfBlocks) {
  for (const char* divide : {"input", "all"}) {
    const auto m = tiny_model(tiny_config("pre"),
                              *method_options("expire_span", {{"divisor", "1.7"}, {"divide", divide}}), at::kFloat);
    at::NoGradGuard no_grad;
    const at::Tensor tokens = random_tokens(2, 24);
    ModelMemory memory = m->begin(2, Stored::projections), other = m->begin(2, Stored::projections);
    const auto whole = m->forward(tokens, memory, {.observe = true}).reports;
    for (int64_t t = 0; t < 24; ++t) {
      const auto one = m->forward(tokens.narrow(1, t, 1), other, {.observe = true}).reports;
      for (size_t l = 0; l < whole.size(); ++l)  // float32: some roundings of 6e-8 in the input, as many in the span
        EXPECT_LE(difference(one[l].told.at("span"), whole[l].told.at("span").narrow(1, t, 1)), 1e-5)
            << divide << ", layer " << l << ", token " << t;
    }
  }
}

TEST(TeamOfThreads, ReadsEveryMethodsTokens) {
  const Threads two(2);
  const at::Tensor tokens = random_tokens(1, 72);
  for (const auto& method : method_table()) {
    const auto m = tiny_model(tiny_config("pre"), *method_options(method.name), at::kFloat);
    const std::vector<int64_t> one(72, 1);
    EXPECT_LE(difference(run(*m, false, tokens, one), run(*m, false, tokens, {72})), 1e-4) << method.name;
  }
}

}  // namespace
}  // namespace lapse
