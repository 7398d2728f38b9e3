// Vector passes over matrices in memory, for whatever instruction set the processor has. No torch here.
#pragma once

#include <cstdint>

namespace lapse {

/// x [rows][columns] times factor [columns], in place.
void scale_columns(float* x, const float* factor, int rows, int columns);
/// to [columns][rows] = from [rows][columns]; both multiples of 4; strides in elements.
void transpose(const float* from, int from_stride, float* to, int to_stride, int rows, int columns);
/// bfloat16 to the nearest, ties to even; denormal numbers may become 0 (native_bfloat16.h). to_pairs joins lines 2i
/// and 2i + 1 of x [rows][columns] to [rows / 2][columns][2].
void to_bfloat16(const float* x, uint16_t* to, int64_t n);
void to_pairs(const float* x, uint16_t* to, int rows, int columns);
/// Where lines go: line i begins at to + i stride, or at to + index[i] stride (negative: it goes nowhere).
template <class T>
struct Lines {
  T* to;
  int64_t stride;
  const int64_t* index = nullptr;
};
/// x [count][width]: the first n elements of line i times factor[i each], in float32 or rounded to bfloat16; zeros
/// where the factor is 0, whatever stands in x.
void store_lines(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                 const Lines<float>& lines);
void store_lines(const float* x, int64_t width, int64_t count, int64_t n, const float* factor, int64_t each,
                 const Lines<uint16_t>& lines);
/// to [n][2]: even and odd [n] in turns; n a multiple of 16.
void join_lines(const uint16_t* even, const uint16_t* odd, uint16_t* to, int64_t n);

/// x [rows][columns] + bias [columns] (unless null), then relu if asked for, in place.
void add_bias(float* x, int64_t stride, int64_t rows, int64_t columns, const float* bias, bool relu);
/// to [m][n], lines `stride` apart: x [m][k] times w [n][k] transposed, for small m. With w in bfloat16 a processor
/// that multiplies pairs (reads_narrow()) takes `narrow`, x rounded to bfloat16; others take x, and `narrow` may be
/// null.
void multiply_lines(const float* x, const float* w, int64_t m, int64_t n, int64_t k, float* to, int64_t stride);
void multiply_lines(const float* x, const uint16_t* narrow, const uint16_t* w, int64_t m, int64_t n, int64_t k,
                    float* to, int64_t stride);
bool reads_narrow();
/// The sum of x y, in float32 or bfloat16.
float dot(const float* x, const float* y, int64_t n);
float dot(const float* x, const uint16_t* y, int64_t n);
float dot(const uint16_t* x, const uint16_t* y, int64_t n);
/// to = scale x where y > 0, else 0: the gradient of relu, and of dropout after it, which multiplies by `scale` or 0.
void where_positive(const float* x, const float* y, float scale, float* to, int64_t n);
/// sum += x; n elements.
void add_to(float* sum, const float* x, int64_t n);

}  // namespace lapse
