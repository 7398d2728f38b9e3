// What "peak" means: the most FLOP/s that matrix products reach here, in this run.
#pragma once

#include <c10/core/ScalarType.h>

#include <map>
#include <string>

#include "bench/measure.h"

namespace lapse::bench {

struct Peak {
  double flops = 0;  ///< per second
  std::string by;    ///< the product that reached it
};

/// The best of square at::mm and of brgemm tiles looped on every core; float32 or bfloat16. `quick`: small and once.
Peak gemm_peak(at::ScalarType type, bool quick);

/// Whether this processor multiplies in `type`; a note says so, once, if not. Elsewhere to find a peak takes minutes,
/// and it means nothing.
bool multiplies(at::ScalarType type);

/// The peaks of the precisions that a run needs. A machine's speed varies over minutes, so that it is measured before
/// each piece of work and after the last, and the best one counts.
class Peaks {
 public:
  explicit Peaks(bool quick) : quick_(quick) {}
  void measure(at::ScalarType type);
  void measure_again();  ///< all that have been measured
  double flops(at::ScalarType type) const { return peaks_.at(type).flops; }
  Json json() const;
  std::string text() const;  ///< "230 GFLOP/s float32 (brgemm ...)"

 private:
  bool quick_;
  std::map<at::ScalarType, Peak> peaks_;
};

/// "float32", "bfloat16".
std::string type_name(at::ScalarType type);

}  // namespace lapse::bench
