#include "lapse/ops/dense/layer_passes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "lapse/core/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lapse/ops/dense/layer_passes.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lapse {
namespace HWY_NAMESPACE {
namespace {

#include "lapse/ops/parallel/simd.inc"

/// to = x + more. Returns the sum of it all.
HWY_INLINE float Sum(const float* x, const float* more, int64_t n, float* to) {
  V sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const V both = more == nullptr ? hn::LoadU(d, x + i) : hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, more + i));
    sums = hn::Add(sums, both);
    hn::StoreU(both, d, to + i);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += to[i] = x[i] + (more == nullptr ? 0 : more[i]);
  return sum;
}

/// 1 / sqrt(mean (x - middle)^2 + epsilon).
HWY_INLINE float InverseDeviation(const float* x, float middle, int64_t n, float epsilon) {
  V squares = hn::Zero(d);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const V centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, middle));
    squares = hn::MulAdd(centred, centred, squares);
  }
  float square = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; i < n; ++i) square += (x[i] - middle) * (x[i] - middle);
  return 1 / std::sqrt(square / static_cast<float>(n) + epsilon);
}

void NormaliseSum(const float* x, const float* more, const float* weight, const float* bias, float epsilon, int64_t n,
                  float* to) {
  const float sum = Sum(x, more, n, to), mean = bias == nullptr ? 0 : sum / static_cast<float>(n);
  const float scale = InverseDeviation(to, mean, n, epsilon);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const V y =
        hn::Mul(hn::Mul(hn::Sub(hn::LoadU(d, to + i), hn::Set(d, mean)), hn::Set(d, scale)), hn::LoadU(d, weight + i));
    hn::StoreU(bias == nullptr ? y : hn::Add(y, hn::LoadU(d, bias + i)), d, to + i);
  }
  for (; i < n; ++i) to[i] = (to[i] - mean) * scale * weight[i] + (bias == nullptr ? 0 : bias[i]);
}

void LayerNormRows(const float* x, const float* more, const float* weight, const float* bias, float epsilon,
                   int64_t rows, int64_t n, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    NormaliseSum(x + r * n, more == nullptr ? more : more + r * n, weight, bias, epsilon, n, to + r * n);
}

/// One row of it; dx holds the sum, and then the normed sum, before it holds the gradient.
HWY_INLINE void LayerNormBackward(const float* dy, const float* x, const float* more, const float* weight,
                                  float epsilon, int64_t n, float* dx, float* dweight, float* dbias) {
  const int64_t whole = n / kN * kN;
  const float mean = Sum(x, more, n, dx) / static_cast<float>(n), scale = InverseDeviation(dx, mean, n, epsilon);
  const V m = hn::Set(d, mean), s = hn::Set(d, scale);
  V gs = hn::Zero(d), gys = hn::Zero(d);
  for (int64_t i = 0; i < whole; i += kN) {
    const V y = hn::Mul(hn::Sub(hn::LoadU(d, dx + i), m), s), dyi = hn::LoadU(d, dy + i);
    const V g = hn::Mul(dyi, hn::LoadU(d, weight + i));
    hn::StoreU(y, d, dx + i);
    hn::StoreU(hn::MulAdd(dyi, y, hn::LoadU(d, dweight + i)), d, dweight + i);
    hn::StoreU(hn::Add(dyi, hn::LoadU(d, dbias + i)), d, dbias + i);
    gs = hn::Add(gs, g);
    gys = hn::MulAdd(g, y, gys);
  }
  float g_sum = hn::GetLane(hn::SumOfLanes(d, gs)), gy_sum = hn::GetLane(hn::SumOfLanes(d, gys));
  for (int64_t i = whole; i < n; ++i) {
    dx[i] = (dx[i] - mean) * scale;
    dweight[i] += dy[i] * dx[i];
    dbias[i] += dy[i];
    g_sum += dy[i] * weight[i];
    gy_sum += dy[i] * weight[i] * dx[i];
  }
  const float g_mean = g_sum / static_cast<float>(n), gy_mean = gy_sum / static_cast<float>(n);
  const V a = hn::Set(d, g_mean), b = hn::Set(d, gy_mean);
  for (int64_t i = 0; i < whole; i += kN) {
    const V g = hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, weight + i));
    hn::StoreU(hn::Mul(s, hn::NegMulAdd(hn::LoadU(d, dx + i), b, hn::Sub(g, a))), d, dx + i);
  }
  for (int64_t i = whole; i < n; ++i) dx[i] = scale * (dy[i] * weight[i] - g_mean - dx[i] * gy_mean);
}

void LayerNormRowsBackward(const float* dy, const float* x, const float* more, const float* weight, float epsilon,
                           int64_t rows, int64_t n, float* dx, float* dweight, float* dbias) {
  for (int64_t r = 0; r < rows; ++r)
    LayerNormBackward(dy + r * n, x + r * n, more == nullptr ? more : more + r * n, weight, epsilon, n, dx + r * n,
                      dweight, dbias);
}

void RmsNormRows(const float* x, const float* weight, float epsilon, int64_t rows, int64_t n, float* to) {
  for (int64_t r = 0; r < rows; ++r, x += n, to += n) {
    const float scale = InverseDeviation(x, 0, n, epsilon);
    const V s = hn::Set(d, scale);
    int64_t i = 0;
    for (; i + kN <= n; i += kN)
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), s), hn::LoadU(d, weight + i)), d, to + i);
    for (; i < n; ++i) to[i] = x[i] * scale * weight[i];
  }
}

void RmsNormRowsBackward(const float* dy, const float* x, const float* weight, float epsilon, int64_t rows, int64_t n,
                         float* dx, float* dweight) {
  const int64_t whole = n / kN * kN;
  for (int64_t r = 0; r < rows; ++r, dy += n, x += n, dx += n) {
    const float scale = InverseDeviation(x, 0, n, epsilon);
    const V s = hn::Set(d, scale);
    V products = hn::Zero(d);
    for (int64_t i = 0; i < whole; i += kN) {
      const V gx = hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, x + i));
      hn::StoreU(hn::MulAdd(gx, s, hn::LoadU(d, dweight + i)), d, dweight + i);
      products = hn::MulAdd(gx, hn::LoadU(d, weight + i), products);
    }
    float product = hn::GetLane(hn::SumOfLanes(d, products));
    for (int64_t i = whole; i < n; ++i) {
      dweight[i] += dy[i] * x[i] * scale;
      product += dy[i] * x[i] * weight[i];
    }
    const float back = product / static_cast<float>(n) * scale * scale;
    const V b = hn::Set(d, back);
    for (int64_t i = 0; i < whole; i += kN) {
      const V g = hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, weight + i));
      hn::StoreU(hn::Mul(s, hn::NegMulAdd(hn::LoadU(d, x + i), b, g)), d, dx + i);
    }
    for (int64_t i = whole; i < n; ++i) dx[i] = scale * (dy[i] * weight[i] - x[i] * back);
  }
}

constexpr float kLog2e = std::numbers::log2e_v<float>;

HWY_INLINE V Sigmoid(V x) {
  const V minus_log2e = hn::Set(d, -kLog2e);
  const V e = Exp2(hn::Min(hn::Mul(x, minus_log2e), hn::Set(d, 126.f)));
  return hn::Div(hn::Set(d, 1.f), hn::Add(hn::Set(d, 1.f), e));
}
float SigmoidOf(float x) { return 1 / (1 + std::exp(-x)); }

void Swiglu(const float* gate, const float* x, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const V a = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Mul(a, Sigmoid(a)), hn::LoadU(d, x + i)), d, to + i);
  }
  for (; i < n; ++i) to[i] = gate[i] * SigmoidOf(gate[i]) * x[i];
}

// silu'(a) = sigmoid(a) (1 + a (1 - sigmoid(a))).
void SwigluBackward(const float* dy, const float* gate, const float* x, int64_t n, float* dgate, float* dx) {
  const V one = hn::Set(d, 1.f);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const V a = hn::LoadU(d, gate + i), s = Sigmoid(a), g = hn::LoadU(d, dy + i);
    const V slope = hn::Mul(s, hn::MulAdd(a, hn::Sub(one, s), one));
    hn::StoreU(hn::Mul(hn::Mul(g, hn::LoadU(d, x + i)), slope), d, dgate + i);
    hn::StoreU(hn::Mul(g, hn::Mul(a, s)), d, dx + i);
  }
  for (; i < n; ++i) {
    const float a = gate[i], s = SigmoidOf(a), g = dy[i];
    dgate[i] = g * x[i] * s * (1 + a * (1 - s));
    dx[i] = g * a * s;
  }
}

struct LargestAndSum {
  float largest, sum;  ///< of x, and of e^(x - largest)
};
HWY_INLINE LargestAndSum SumExp(const float* x, int64_t n) {
  const int64_t whole = n / kN * kN;
  V largest = hn::Set(d, x[0]), sums = hn::Zero(d);
  for (int64_t i = 0; i < whole; i += kN) largest = hn::Max(largest, hn::LoadU(d, x + i));
  float top = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (int64_t i = whole; i < n; ++i) top = std::max(top, x[i]);
  const V t = hn::Set(d, top), log2e = hn::Set(d, kLog2e);
  for (int64_t i = 0; i < whole; i += kN) sums = hn::Add(sums, Exp2(hn::Mul(hn::Sub(hn::LoadU(d, x + i), t), log2e)));
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (int64_t i = whole; i < n; ++i) sum += std::exp(x[i] - top);
  return {top, sum};
}

float LogSumExp(const float* x, int64_t n) {
  const auto [largest, sum] = SumExp(x, n);
  return largest + std::log(sum);
}

// Differences of logits keep digits that a logarithm of all, as large as the logits are, would not.
float CrossEntropy(const float* x, int64_t n, int64_t right) {
  const auto [largest, sum] = SumExp(x, n);
  return std::log(sum) + (largest - x[right]);
}

// p_i = e^(x_i - x_right - nats).
void CrossEntropyBackward(float* x, int64_t n, int64_t right, float nats, float dy) {
  const float from = x[right];
  const V f = hn::Set(d, from), less = hn::Set(d, nats), log2e = hn::Set(d, kLog2e), g = hn::Set(d, dy);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    const V log_p = hn::Sub(hn::Sub(hn::LoadU(d, x + i), f), less);
    hn::StoreU(hn::Mul(g, Exp2(hn::Mul(log_p, log2e))), d, x + i);
  }
  for (; i < n; ++i) x[i] = dy * std::exp(x[i] - from - nats);
  x[right] -= dy;
}

// The compiler makes vectors of the loop over mix64: products of 64 bits are there for some instruction sets only.
void Dropout(const DropoutDraw& draw, const float* x, int64_t begin, int64_t n, float* to) {
  static_assert(std::endian::native == std::endian::little);  // the lower half first
  constexpr int64_t kPairs = 32;
  uint64_t bits[kPairs];
  uint32_t half[2 * kPairs];
  const auto [key, least, scale] = draw;
  const V kept = hn::Set(d, scale);
  for (int64_t at = 0, some = 0; at < n; at += some) {
    const int64_t odd = (begin + at) % 2;
    const uint64_t first = key + static_cast<uint64_t>(begin + at) / 2;
    for (int64_t i = 0; i < kPairs; ++i) bits[i] = mix64(first + static_cast<uint64_t>(i));
    std::memcpy(half, bits, sizeof(bits));
    some = std::min(2 * kPairs - odd, n - at);
    int64_t i = 0;
    for (; i + kN <= some; i += kN) {
      const auto drops = hn::RebindMask(d, hn::Lt(hn::LoadU(du, half + odd + i), hn::Set(du, least)));
      hn::StoreU(hn::Mul(hn::LoadU(d, x + at + i), hn::IfThenZeroElse(drops, kept)), d, to + at + i);
    }
    for (; i < some; ++i) to[at + i] = x[at + i] * (half[odd + i] >= least ? scale : 0.f);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lapse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapse {

HWY_EXPORT(NormaliseSum);
HWY_EXPORT(LayerNormRows);
HWY_EXPORT(LayerNormRowsBackward);
HWY_EXPORT(RmsNormRows);
HWY_EXPORT(RmsNormRowsBackward);
HWY_EXPORT(Swiglu);
HWY_EXPORT(SwigluBackward);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(CrossEntropy);
HWY_EXPORT(CrossEntropyBackward);
HWY_EXPORT(Dropout);

void normalise_sum(const float* x, const float* more, const float* weight, const float* bias, float epsilon, int64_t n,
                   float* to) {
  HWY_DYNAMIC_DISPATCH(NormaliseSum)(x, more, weight, bias, epsilon, n, to);
}
void layer_norm_rows(const float* x, const float* more, const float* weight, const float* bias, float epsilon,
                     int64_t rows, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(LayerNormRows)(x, more, weight, bias, epsilon, rows, n, to);
}
void layer_norm_rows_backward(const float* dy, const float* x, const float* more, const float* weight, float epsilon,
                              int64_t rows, int64_t n, float* dx, float* dweight, float* dbias) {
  HWY_DYNAMIC_DISPATCH(LayerNormRowsBackward)(dy, x, more, weight, epsilon, rows, n, dx, dweight, dbias);
}
void rms_norm_rows(const float* x, const float* weight, float epsilon, int64_t rows, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(RmsNormRows)(x, weight, epsilon, rows, n, to);
}
void rms_norm_rows_backward(const float* dy, const float* x, const float* weight, float epsilon, int64_t rows,
                            int64_t n, float* dx, float* dweight) {
  HWY_DYNAMIC_DISPATCH(RmsNormRowsBackward)(dy, x, weight, epsilon, rows, n, dx, dweight);
}
void swiglu_pass(const float* gate, const float* x, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(gate, x, n, to);
}
void swiglu_pass_backward(const float* dy, const float* gate, const float* x, int64_t n, float* dgate, float* dx) {
  HWY_DYNAMIC_DISPATCH(SwigluBackward)(dy, gate, x, n, dgate, dx);
}
float log_sum_exp(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LogSumExp)(x, n); }
float cross_entropy_pass(const float* x, int64_t n, int64_t right) {
  return HWY_DYNAMIC_DISPATCH(CrossEntropy)(x, n, right);
}
void cross_entropy_pass_backward(float* x, int64_t n, int64_t right, float nats, float dy) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyBackward)(x, n, right, nats, dy);
}
void dropout_pass(const DropoutDraw& draw, const float* x, int64_t begin, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Dropout)(draw, x, begin, n, to);
}

}  // namespace lapse
#endif  // HWY_ONCE
