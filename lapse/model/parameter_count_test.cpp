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

#include "lapse/model/transformer_testing.h"

namespace lapse {
namespace {

constexpr int64_t kContext = 512, kPieces = 8192, kHeadDim = 64;

struct Row {
  int64_t d, parameters;
};

const Row kTable8[] = {{8, 33603584},   {10, 59699200},  {12, 97615872},  {14, 149666048},
                       {16, 218226688}, {18, 305717760}, {20, 414387200}, {22, 546641920},
                       {24, 704950272}, {26, 891468032}, {28, 1108645888}};

// Models are built to be counted, so the larger ones are left out: one layer of d = 28 takes 154 MB.
constexpr int64_t kLargest = 16;

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
  Transformer model(config, *method_options(method), vocabulary, kContext, Random(1, "weights"));
  Count count;
  for (auto& [name, tensor] : model.parameters())
    (name == "position"                       ? count.positions
     : name.find("norm") != std::string::npos ? count.norms
                                              : count.matrices) += tensor->numel();
  EXPECT_EQ(count.all(), model.parameter_count());
  return count;
}

/// Of the whole model, from one of a single layer that knows a single token.
Count count_paper(int64_t d) {
  ModelConfig config = paper_config(d);
  config.layers = 1;
  Count whole = count(config, 1);
  const int64_t w = config.width, rows = 2;  // of the one token: embedding and output
  whole.matrices = (whole.matrices - rows * w) * d + rows * kPieces * w;
  whole.norms = (whole.norms - w) * d + w;  // the last norm is the model's
  return whole;
}

TEST(ParameterCount, IsThatOfTable8InEveryMatrix) {
  for (const auto& [d, parameters] : kTable8) {
    if (d > kLargest) continue;
    const int64_t w = kHeadDim * d;
    const Count ours = count_paper(d);
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

TEST(ParameterCount, OfOneLayerGivesThatOfMany) {
  const int64_t d = 3, w = kHeadDim * d;
  Count whole = count(paper_config(d), 100), expected = count_paper(d);
  EXPECT_EQ(whole.all(), expected.all() - 2 * (kPieces - 100) * w);
}

}  // namespace
}  // namespace lapse
