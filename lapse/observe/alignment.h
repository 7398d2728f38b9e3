// Two texts, one perhaps an edit of the other: which tokens they have in common.
#pragma once

#include <cstdint>
#include <vector>

namespace lapse {

struct Alignment {
  std::vector<int64_t> partner;  ///< of each token of the one text its place in the other, or -1
  bool whole;                    ///< else only what the texts begin and end with was compared
};

constexpr int64_t kMostEdits = 2000;

/// A longest common subsequence of `a` and `b`; not whole where more than `most_edits` tokens would have to be deleted
/// or inserted.
Alignment aligned(const std::vector<int32_t>& a, const std::vector<int32_t>& b, int64_t most_edits = kMostEdits);

}  // namespace lapse
