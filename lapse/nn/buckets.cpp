#include "lapse/nn/buckets.h"

#include <algorithm>
#include <cmath>

#include "lapse/ops/aten.h"
#include "lapse/ops/dense/few_rows.h"
#include "lapse/ops/waiting.h"

namespace lapse {

int64_t bucket_of(int64_t r, int64_t farthest, bool both_ways) {
  const int64_t n = both_ways ? kBuckets / 2 : kBuckets, exact = n / 2;
  const int64_t offset = both_ways && r > 0 ? n : 0, distance = both_ways ? std::abs(r) : std::max<int64_t>(-r, 0);
  if (distance < exact) return offset + distance;
  const auto width = static_cast<double>(exact);
  const double share =
      std::log(static_cast<double>(distance) / width) / std::log(static_cast<double>(farthest) / width);
  return offset + std::min(n - 1, exact + static_cast<int64_t>(share * static_cast<double>(n - exact)));
}

std::vector<int64_t> buckets_by_age(int64_t farthest, bool both_ways) {
  std::vector<int64_t> buckets;
  for (int64_t age = both_ways ? -farthest : 0; age <= farthest; ++age)
    buckets.push_back(bucket_of(-age, farthest, both_ways));
  return buckets;
}

at::Tensor bias_by_age(const at::Tensor& table, const std::vector<int64_t>& buckets) {
  TORCH_CHECK(table.dim() == 2 && table.size(0) == kBuckets, "biases must be [", kBuckets, ", heads], got ",
              table.sizes());
  if (few_rows(table, kBuckets)) {  // as for a token: without libtorch's operators
    const int64_t heads = table.size(1), ages = std::ssize(buckets);
    at::Tensor bias = empty_rows({heads, ages});
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t a = 0; a < ages; ++a)
        bias.mutable_data_ptr<float>()[h * ages + a] = table.const_data_ptr<float>()[buckets[a] * heads + h];
    return bias;
  }
  // Not by index_select: its gradient would depend on the order in which a GPU's threads come.
  return at::embedding(table, sent(at::tensor(buckets, at::kLong), table.device())).t().contiguous();
}

}  // namespace lapse
