// What each token does with each token before it, layer by layer: of one text, or as a mean over many.
#pragma once

#include <functional>

#include "lapse/core/json.h"
#include "lapse/data/source.h"
#include "lapse/model/transformer.h"

namespace lapse {

struct MatrixOptions {
  std::string what;       ///< "attention": the weights; "kept": 1 where the row is in memory, the query's own
                          ///< included; else what the method
                          ///< tells of pairs (Method::tell_pairs), as "masking"
  int64_t documents = 1;  ///< read at most so many
  int64_t layer = -1;     ///< only this one; -1: all
  std::function<void(int64_t done)> progress = {};  ///< after each block; may be empty
};

struct MatrixRecord {
  /// A layer's means [H, N, N] of query (line) and row, float64; H = 1 but of attention. 0 where the row is later.
  struct Layer {
    int64_t number;
    at::Tensor mean;
  };
  std::vector<Layer> layers;
  int64_t documents = 0;
  std::vector<int64_t> counts;  ///< [N] over how many documents the line of a query is a mean
  std::vector<int32_t> tokens;  ///< of the only document; else empty
  bool stopped = false;         ///< by Ctrl-C, before the end
};

/// Reads every sample of every block from empty memory. What is held grows with the blocks' length and not with their
/// number. Error if there is nothing to read, the method tells no such matrix, or reads token by token.
MatrixRecord record_matrix(Transformer& model, EvaluationBlocks& blocks, const MatrixOptions& options);

/// As JSON, for `lapse plot`: layers -> heads -> of each query the values of rows 0 ... query. `read`: what was read,
/// and how. `texts`: of the tokens.
std::string matrix_json(const MatrixRecord& record, const MatrixOptions& options, const Json& read,
                        const std::vector<std::string>& texts);

}  // namespace lapse
