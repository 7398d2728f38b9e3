// Relative positions as T5 has them: a bias of attention logits for each bucket of distances, learned per head.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lapse {

constexpr int64_t kBuckets = 32;  ///< rows of the table

/// The bucket of r = (time of key) - (time of query): one for each short distance, then wider and wider ones
/// (docs/equations.md, "Relative buckets"). From the distance `farthest` on, above 16, there is one bucket per
/// direction. `both_ways`: half of the buckets are for keys after the query; else those share bucket 0.
int64_t bucket_of(int64_t r, int64_t farthest, bool both_ways);

/// The bucket of each age: of 0 ... farthest, or of -farthest ... farthest where keys lie `both_ways`. Ages beyond are
/// in the bucket of the outermost.
std::vector<int64_t> buckets_by_age(int64_t farthest, bool both_ways);

/// Of a table [kBuckets, H] the bias of each age [H, A], with gradient.
at::Tensor bias_by_age(const at::Tensor& table, const std::vector<int64_t>& buckets);

}  // namespace lapse
