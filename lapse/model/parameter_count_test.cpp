// Table 8 of Selective Attention (A.13): the parameters of its models of d layers with d heads of 64 features, width
// 64 d, vocabulary 8,192 and context 512.
//
// All eleven counts are exactly
//
//   d (4 w^2 + 3 w floor(8 w / 3))   attention's four matrices and SwiGLU's three, in each layer
//   + 2 * 8192 w                     embedding and output, not tied
//   + 6 w d + 56 w                   the rest, which the paper does not explain
//
// The matrices are ours, number by number. The rest cannot be: learned positions of a context of 512 alone are 512 w,
// so the table leaves them out, or they are something smaller; and our norms have (2 w + 128) d + w (two RMSNorms and
// the scales of q and k in each layer, and the last norm). Ours thus has (459 - 4 d) w more than the table, 0.7 % for d
// = 8 and less for all others.
#include <gtest/gtest.h>

#include "lapse/forgetting/registry.h"
#include "lapse/model/transformer_testing.h"
#include "lapse/nn/initialise.h"

namespace lapse {
namespace {

constexpr int64_t kContext = 512, kPieces = 8192, kHeadDim = 64;

struct Row {
  int64_t d, parameters;
};

const Row kTable8[] = {{8, 33603584},   {10, 59699200},  {12, 97615872},  {14, 149666048},
                       {16, 218226688}, {18, 305717760}, {20, 414387200}, {22, 546641920},
                       {24, 704950272}, {26, 891468032}, {28, 1108645888}};

ModelConfig paper_config(int64_t d) {
  ModelConfig config;
  config.layers = config.heads = d, config.width = kHeadDim * d, config.feed_forward = 0;
  config.norm = "pre", config.norm_kind = "rms", config.activation = "swiglu", config.positions = "absolute";
  config.biases = false, config.normed_heads = config.attend_self = true;
  return config;
}

struct Count {
  int64_t matrices = 0, positions = 0, norms = 0;
  int64_t all() const { return matrices + positions + norms; }
};

Count count(const ModelConfig& config, int64_t vocabulary, const std::string& method = "selective_attention") {
  const ShapesOnly guard;  // d = 28 would take 4.4 GB
  Transformer model(config, *method_options(method), vocabulary, kContext, Random(1, "weights"));
  Count count;
  for (auto& [name, tensor] : model.parameters())
    (name == "position"                       ? count.positions
     : name.find("norm") != std::string::npos ? count.norms
                                              : count.matrices) += tensor->numel();
  EXPECT_EQ(count.all(), count_parameters(config, *method_options(method), token_ends(vocabulary), kContext));
  return count;
}

TEST(ParameterCount, IsThatOfTable8InEveryMatrix) {
  for (const auto& [d, parameters] : kTable8) {
    const int64_t w = kHeadDim * d;
    const Count ours = count(paper_config(d), kPieces);
    EXPECT_EQ(ours.matrices, parameters - 6 * w * d - 56 * w) << "d = " << d;
    EXPECT_EQ(ours.positions, kContext * w) << "d = " << d;
    EXPECT_EQ(ours.norms, (2 * w + 2 * kHeadDim) * d + w) << "d = " << d;
    EXPECT_EQ(ours.all() - parameters, (459 - 4 * d) * w) << "d = " << d;
  }
}

// "Selective attention does not add any extra parameters."
TEST(ParameterCount, IsTheSameWithStandardAttention) {
  const ModelConfig config = paper_config(2);
  EXPECT_EQ(count(config, 100).all(), count(config, 100, "fixed_span").all());
}

// Whatever the model and the method, a model without values has the parameters of one with values.
TEST(ParameterCount, OfShapesOnlyIsThatOfTheModel) {
  for (const auto& method : method_table()) {
    for (const char* norm : {"pre", "post"}) {
      ModelConfig config;
      config.width = 24, config.layers = 4, config.heads = 2, config.feed_forward = 40, config.norm = norm;
      const auto options = method.options();
      const ModelEnds ends = token_ends(50, 7);
      Transformer model(config, *options, ends, 16, Random(1, "weights"));
      EXPECT_EQ(count_parameters(config, *options, ends, 16), model.parameter_count()) << method.name;
    }
  }
}

}  // namespace
}  // namespace lapse
