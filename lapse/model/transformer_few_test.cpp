// A few tokens at a time, which layers read on plain memory, against whole blocks, for every form of the base model.
#include <gtest/gtest.h>

#include "lapse/model/transformer_testing.h"

namespace lapse {
namespace {

/// Norm's place, norm, activation, biases.
class FewTokens : public testing::TestWithParam<std::tuple<std::string, std::string, std::string, bool>> {};

INSTANTIATE_TEST_SUITE_P(All, FewTokens,
                         testing::Combine(testing::Values("post", "pre"), testing::Values("layer", "rms"),
                                          testing::Values("relu", "swiglu"), testing::Bool()),
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

}  // namespace
}  // namespace lapse
