// Two texts, one perhaps an edit of the other: which tokens they have in common.
#pragma once

#include <cstdint>
#include <vector>

namespace lapse {

/// Of each token of `a` its place in `b`, or -1: a longest common subsequence. Where more than `most_edits` tokens
/// would have to be deleted or inserted, only what the texts begin and end with is common.
std::vector<int64_t> aligned(const std::vector<int32_t>& a, const std::vector<int32_t>& b, int64_t most_edits = 2000);

}  // namespace lapse
