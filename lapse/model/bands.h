// Words in bands by how frequent they are: rarer ones have fewer features (docs/equations.md, "Adaptive input and
// softmax").
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lapse/model/config.h"

namespace lapse {

/// Words 0 ... V - 1, the most frequent first, cut at the cutoffs c_1 < ... < c_n into bands 0 ... n. Word w of band i
/// has the vector P_i E_i[w]: E_i [size, d_i] with d_i = width / factor^i, P_i [width, d_i]. Without P_0, unless
/// `project_first`, band 0 has E_0[w] itself.
class Bands {
 public:
  /// Fresh ones: E_i ~ N(0, 1 / d_i), P_i as linear weights. Error, naming the option, for cutoffs or a factor that do
  /// not fit the vocabulary or the width.
  Bands(const ModelConfig& config, int64_t words, Random& random);

  int64_t words() const { return edges_.back(); }
  int64_t count() const { return std::ssize(embeddings_); }
  int64_t begin(int64_t band) const { return edges_[band]; }  ///< its first word
  int64_t size(int64_t band) const { return edges_[band + 1] - edges_[band]; }
  /// Of words [N] int64: [N] int64.
  at::Tensor band_of(const at::Tensor& words) const;
  /// Of words [N] of one band: [N, width].
  at::Tensor vectors(int64_t band, const at::Tensor& words) const;
  /// Of x [N, width] the products with the vectors of one band's words, E_i (P_i^T x): [N, size].
  at::Tensor products(int64_t band, const at::Tensor& x, bool bfloat16) const;

  /// NAME.i.weight, NAME.i.projection.
  NamedTensors parameters(const std::string& name);
  void to_bfloat16();  ///< Transformer::to_bfloat16

 private:
  std::vector<int64_t> edges_;           // 0, the cutoffs, V
  std::vector<at::Tensor> embeddings_;   // E_i
  std::vector<at::Tensor> projections_;  // P_i; undefined: none
};

}  // namespace lapse
