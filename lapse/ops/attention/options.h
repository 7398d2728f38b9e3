// What the core of both attention operators can do beside reading rows, and what its inputs must be.
#pragma once

#include "lapse/ops/attention/rows.h"

namespace lapse {

constexpr double kRenormalisation = 1e-8;  ///< added to the sum that weights with spans are divided by

struct CoreOptions {
  std::optional<at::Tensor> row_span;   ///< [N]: span e_i of each row in timesteps
  std::optional<at::Tensor> head_span;  ///< [H]: span of each head; not together with row_span
  std::optional<at::Tensor> position;   ///< [P, D]: row a-1 is p_a, the embedding of age a = 1 ... P
  std::optional<at::Tensor> logit;      ///< [N, H]: added to the logits of a row
  std::optional<at::Tensor> age_bias;   ///< [H, A]: added to the logits of rows of age bias_age ... bias_age + A - 1
  std::optional<at::Tensor> seed;       ///< [1] int64, needed with dropout
  int64_t bias_age = 0;                 ///< younger rows take the table's first column, older ones its last
  std::optional<double> scale;          ///< of q . k; absent: 1 / sqrt(D)
  double ramp = 1;                      ///< R > 0 in timesteps
  int64_t min_age = 1;                  ///< a query reads rows of age min_age ... max_age; below 0: later rows too
  int64_t max_age = kNoLimit;
  double dropout = 0;  ///< in [0, 1): on the normalised weights, scaled by 1 / (1 - dropout)
};

/// c10::Error, which begins with the operator's name, for ill-shaped inputs; look at shapes and dtypes only.
void check_attention(const char* op, const AttentionInputs& inputs, const CoreOptions& options);
void check_floating(const char* op, const char* name, const std::optional<at::Tensor>& x, c10::SymIntArrayRef shape);
void check_shape(const char* op, const char* name, const at::Tensor& x, c10::SymIntArrayRef shape);
/// And this, which reads them: c10::Error unless offsets are on the CPU, contiguous, ascending and within the rows.
void check_attention_offsets(const char* op, const AttentionInputs& inputs);

}  // namespace lapse
