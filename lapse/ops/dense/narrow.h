// The gradients of linear layers whose weights are small beside their rows, in one pass over the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "lapse/ops/dense/matmul.h"

namespace lapse {

/// y [m][n] = x [m][k] weight^T, one of the products that share x.
struct NarrowProduct {
  const float* dy;      ///< [m][n]
  const float* weight;  ///< [n][k]
  int64_t n;
  float* dweight;  ///< [n][k], or null: not needed
};

struct NarrowLayer {
  const float* x;
  int64_t m, k;
  std::vector<NarrowProduct> products;
  const float* relu = nullptr;  ///< y = max(0, ...) of the only product, or null: no relu
  float scale = 1;              ///< where y > 0, dropout multiplied it by so much
  float* dx = nullptr;          ///< [m][k], or null
  std::vector<RowRange> rows;   ///< where dx is needed; elsewhere it is 0 or the true one
  float* dbias = nullptr;       ///< [n] of the only product, or null
};

/// Whether `narrow_gradients` takes weights [n][k] over m rows, for each n, and is the fast way.
bool narrow(int64_t m, int64_t k, const std::vector<int64_t>& n);

/// Writes dx = sum over products of dy weight, dweight = dy^T x and dbias = sums of dy over rows, dy being 0 where relu
/// gave 0. The sums over rows do not depend on the number of threads.
void narrow_gradients(const NarrowLayer& layer);

}  // namespace lapse
