// Attention of single queries: no tiles, no copies; every row is read once, for all heads. No torch here.
#pragma once

#include <cstdint>

namespace lapse {

/// Some rows of one sample before one query, in float32, or with T = uint16_t in bfloat16. Rows lie `stride` elements
/// apart, key heads side by side within them.
template <class T>
struct RowBlock {
  int64_t rows, key_heads, group, width;  ///< group: heads of a key head; width: D
  float scale;                            ///< of q . k
  const float* q;                         ///< [heads][width]
  const T* narrow_q;                      ///< the same in T where that is bfloat16; else null
  const T *k, *v;
  int64_t stride;
  const float* logit;   ///< [rows][heads], or null
  const T* position;    ///< [P][width]: of ages 1 ... P, or null
  int64_t positions;    ///< P
  const int32_t* age;   ///< [rows]
  const float* weight;  ///< [rows]: m, negative for a row that the query does not see
  const int32_t* line;  ///< [rows]: where each row lies, counted in strides from k and v; null: one after the other

  int64_t at(int64_t row) const { return (line == nullptr ? row : line[row]) * stride; }
  int64_t heads() const { return key_heads * group; }
};

/// What rows contribute to each head: softmax relative to 2^largest, not normalised. `values` [heads][width]; weights
/// [heads][rows]: m exp.
struct RowSums {
  float* values;
  float* weights;
  float *largest, *sum, *masked;  ///< [heads]

  /// The parts of `floats` numbers at x. The values come first: vectors across cache lines would take twice as long.
  RowSums(float* x, int64_t heads, int64_t width, int64_t rows)
      : values(x),
        weights(x + heads * width),
        largest(weights + heads * rows),
        sum(largest + heads),
        masked(sum + heads) {}
  static int64_t floats(int64_t heads, int64_t width, int64_t rows) {
    return (heads * (width + rows + 3) + 15) / 16 * 16;
  }
};
void rows_forward(const RowBlock<float>& block, const RowSums& sums);
void rows_forward(const RowBlock<uint16_t>& block, const RowSums& sums);

}  // namespace lapse
