// Vector passes of a layer around attention and products: norms, gates, softmax's sum and loss, dropout, for whatever
// instruction set the processor has. No torch here.
#pragma once

#include <cstdint>

namespace lapse {

/// to = (x + more - mean) / sqrt(variance + epsilon) * weight + bias, LayerNorm of a sum (of x if more is null);
/// without bias RMSNorm, whose mean is taken as 0. n elements.
void normalise_sum(const float* x, const float* more, const float* weight, const float* bias, float epsilon, int64_t n,
                   float* to);

/// LayerNorm of rows of a sum: normalise_sum of each.
void layer_norm_rows(const float* x, const float* more, const float* weight, const float* bias, float epsilon,
                     int64_t rows, int64_t n, float* to);
/// Its gradients, with y the normed sum before weight and bias, and s what it was multiplied by: dx = s (g - mean(g) -
/// y mean(g y)) with g = dy weight, of x and `more` alike; dweight += sum over rows of dy y, dbias += sum of dy.
void layer_norm_rows_backward(const float* dy, const float* x, const float* more, const float* weight, float epsilon,
                              int64_t rows, int64_t n, float* dx, float* dweight, float* dbias);

/// RMSNorm of rows: to [rows][n] = x s weight with s = 1 / sqrt(mean x^2 + epsilon) of each row.
void rms_norm_rows(const float* x, const float* weight, float epsilon, int64_t rows, int64_t n, float* to);
/// Its gradients: dx = s (g - x s^2 mean(g x)) with g = dy weight, and dweight += sum over rows of dy x s.
void rms_norm_rows_backward(const float* dy, const float* x, const float* weight, float epsilon, int64_t rows,
                            int64_t n, float* dx, float* dweight);

/// SwiGLU: to = silu(gate) x, silu(a) = a sigmoid(a); n elements.
void swiglu_pass(const float* gate, const float* x, int64_t n, float* to);
void swiglu_pass_backward(const float* dy, const float* gate, const float* x, int64_t n, float* dgate, float* dx);

/// log(sum of e^x): what logits are to be less by to be log-probabilities; n elements, at least one.
float log_sum_exp(const float* x, int64_t n);
/// -log softmax(x)[right], n logits; and its gradient dy (softmax(x) - 1 at `right`), which takes the place of x.
float cross_entropy_pass(const float* x, int64_t n, int64_t right);
void cross_entropy_pass_backward(float* x, int64_t n, int64_t right, float nats, float dy);

/// Dropout's factors: element i has one half, the lower or the upper, of the 64 bits mix64(key + i / 2); `scale` if
/// that is `least` or more, else 0. to = x times those of elements begin ... begin + n - 1; `to` may be x.
struct DropoutDraw {
  uint64_t key;
  uint32_t least;
  float scale;
};
void dropout_pass(const DropoutDraw& draw, const float* x, int64_t begin, int64_t n, float* to);

}  // namespace lapse
