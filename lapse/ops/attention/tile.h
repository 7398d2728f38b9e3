// The arithmetic of ramp_attention between its matrix products: vector passes over one tile of scores. No torch here.
#pragma once

#include <cstdint>

namespace lapse {

constexpr int kTileRows = 64;     ///< rows of a tile
constexpr int kTileQueries = 64;  ///< most queries of a tile: a multiple of 16, which every vector length divides

/// Scores of up to 64 rows (first index) by `queries` queries, so that what belongs to a query is a vector and what
/// belongs to a row is a scalar. Queries are numbered from the block's first; a row's age is that at this query 0. Rows
/// that only fill the tile up are visible to none: first > last.
struct ScoreTile {
  int rows;         ///< lines: a multiple of 16, at most kTileRows
  int queries;      ///< columns: a multiple of 16, at most kTileQueries
  int first_query;  ///< the number of column 0
  bool masked;      ///< false: every query sees every row with m = 1

  const int32_t* age;    ///< [rows]
  const int32_t* first;  ///< [rows] the first and the last query that sees the row
  const int32_t* last;   ///< [rows]
  const float* span;     ///< [rows], null without spans
  float ramp;

  // What is added to q . k, null where there is none; counted in scores: what the logit gets, divided by its scale.
  const float* logit;      ///< [rows]
  const float* by_age;     ///< [.][queries]: q . p_age of successive ages at column 0
  const int32_t* age_at;   ///< [rows]: the row's line of by_age, or -1
  const float* bias;       ///< by age; a row meets successive ones at successive queries
  const int32_t* bias_at;  ///< [rows]: where in `bias` column 0 is

  const float* masking = nullptr;  ///< [rows][queries], null without: subtracted from the scores

  const float* dropout;  ///< [rows][queries] factors, null without
  float scale;           ///< from a score to an exponent of 2: log2(e) times the scale of q . k
};

/// What the forward pass knows of each query after some tiles: softmax relative to `largest`, not yet normalised.
struct RunningSoftmax {
  float largest[kTileQueries];  ///< of the scores, before `scale`
  float sum[kTileQueries];      ///< of exp
  float masked[kTileQueries];   ///< of m exp
};
void begin_softmax(RunningSoftmax& running);

/// Completes the products `score` [rows][queries] by position and logit and turns them into weights m exp(s - largest),
/// dropped out if asked for, in place. Updates `running`, and returns in `rescale` [queries] what everything summed
/// with earlier values of `largest` is to be multiplied by. ramp_sum: the sum of r over the ramp is added, unless null.
void tile_forward(const ScoreTile& tile, float* score, RunningSoftmax& running, float* rescale, double* ramp_sum);

/// Turns products `score` into normalised weights (dropped out: what v was multiplied by) and `grad` = dout . v into
/// the gradient of the logits, both in place. lse2: log2 of the softmax's sum, and of Z + 1e-8 with spans;
/// dot: dout . out; both [queries]. Where not null, the gradients of span times R, of the logits, and the number of
/// queries that have the row on their ramp are added to [rows].
struct TileGradients {
  float *span, *on_ramp, *logit;
  float* masking = nullptr;  ///< [rows][queries]: unless null the gradient of each logit is added
  /// Lines as those of ScoreTile::by_age: unless null the gradient of each row's logits is copied to its line, which is
  /// no other row's, since times ascend (rows.h).
  float* by_age = nullptr;
};
void tile_backward(const ScoreTile& tile, const float* lse2, const float* dot, float* score, float* grad,
                   const TileGradients& sums);

/// The sum over queries of a' of each row, before dropout, added to received [rows].
void tile_received(const ScoreTile& tile, const float* lse2, float* score, float* received);

/// Dropout's factors [rows][queries], 0 or 1 / (1 - p): of queries from number `query` on, and rows of these indices.
void draw_dropout(double p, uint64_t seed, uint64_t query, int queries, const int64_t* index, int rows, float* factors);

/// x[a][t] = y[a + t][t] for a in 0 ... lines - queries - 1, in place, and the inverse, which adds nothing: x[a][t] =
/// y[a - t][t] for a in queries ... lines - 1. x: [lines][queries].
void skew(float* x, int lines, int queries);
void unskew(float* x, int lines, int queries);

}  // namespace lapse
