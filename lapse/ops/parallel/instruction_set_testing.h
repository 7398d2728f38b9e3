// The instruction set that Highway's kernels run on in a test.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <vector>

namespace lapse {

/// The instruction sets that this machine has, one at a time; the best one again at the end of the scope.
class InstructionSet {
 public:
  explicit InstructionSet(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  InstructionSet(const InstructionSet&) = delete;
  ~InstructionSet() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  static std::vector<int64_t> all() {
    std::vector<int64_t> targets;
    for (int64_t bit = 1; bit > 0; bit <<= 1)
      if ((hwy::SupportedTargets() & bit) != 0 && bit != (int64_t{1} << 62)) targets.push_back(bit);
    return targets;
  }
};

}  // namespace lapse
