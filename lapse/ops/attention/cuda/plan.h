// The plan of a call, made on the device by the kernels of rows.py.
#pragma once

#include "lapse/ops/attention/options.h"
#include "lapse/ops/cuda/kernels.h"

namespace lapse::cuda {

constexpr int64_t kChunk = 256;  ///< CHUNK of rows.py

/// The rows that some query sees.
struct SeenRows {
  at::Tensor packed, spans, offsets, count, ramp_sum;  ///< as plan.py says
  int64_t span_row = 0, span_head = 0;                 ///< whether rows have spans, whether heads
  int64_t most = 0;                                    ///< rows of a sample, before any are left out
  int64_t stride() const { return packed.size(1); }    ///< of the lines of `packed`
};
SeenRows plan_rows(const AttentionInputs& inputs, const CoreOptions& options);

/// Ranges of queries of each block of so many rows: block_ranges of rows.py.
at::Tensor plan_ranges(const SeenRows& seen, int64_t rows, int64_t whole_age = -(int64_t{1} << 30));

/// Kernels find a row of x [N, ...] by 32 bits, in pieces of 16 numbers (features_of in tile.py): 68 GB in bfloat16.
void check_places(const at::Tensor& x);

/// [rows of the table, more ...] of which a kernel writes every row of every sample; zero are the others, if there are
/// any.
at::Tensor of_rows(const AttentionInputs& inputs, at::IntArrayRef more, at::ScalarType type);

/// Which blocks of rows each block of so many queries reads.
struct Lists {
  at::Tensor lists, counts;
};
Lists plan_lists(const at::Tensor& ranges, int64_t K, int64_t queries);

/// Queries of a sample up to which each reads the rows by itself, in one launch for all; and the most in one launch,
/// the limit of a grid's last dimension.
constexpr int64_t kFewOnGpu = 4, kMostOnGpu = 65535;
/// Whether that kernel takes the call's shape.
bool few_queries(const AttentionInputs& inputs);

/// How many programs share out the rows before each query and key head; how many rows, a multiple of `size`, each
/// reads. It depends on the call alone, and so do the sums.
struct FewParts {
  int64_t parts, rows;
};
FewParts few_parts(const AttentionInputs& inputs, int64_t size);

/// "bf16.64": the suffix of kernels for q's dtype and width; empty where none were compiled.
std::string kernel_kind(const at::Tensor& q, int64_t width);
int64_t kernel_width(int64_t width);  ///< that of the kernels, zeros behind; 0: none
at::Tensor widened(const at::Tensor& x, int64_t width);
/// x, contiguous, from an address that the kernels can begin at: they read 16 bytes at a time. A slice may not be so.
at::Tensor aligned(const at::Tensor& x);
at::Tensor as_floats(const at::Tensor& x);
at::Tensor as_floats(const std::optional<at::Tensor>& x, const at::Tensor& absent);
int64_t blocks_of(int64_t n, int64_t size);  ///< at least one
double kept_scale(double dropout);
int64_t drop_threshold(double dropout);
at::Tensor seed_on(const std::optional<at::Tensor>& seed, const at::Tensor& like);

}  // namespace lapse::cuda
