#include "lapse/forgetting/h2o.h"

#include <algorithm>

#include "lapse/forgetting/eviction.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

class H2o : public Eviction {
 public:
  H2o(const ModelShape& shape, int64_t budget, int64_t max_age) : Eviction(shape, budget, max_age, Chooses::head) {}

 protected:
  at::Tensor score(const at::Tensor& before, const at::Tensor& received) const override { return before + received; }
  // Half the budget is for the newest, half for the heavy hitters.
  int64_t safe(int64_t budget) const override { return std::max<int64_t>(1, budget / 2); }
};

}  // namespace

std::unique_ptr<MethodOptions> h2o_options() {
  return eviction_options("h2o", Chooses::head, [](const ModelShape& shape, int64_t budget, int64_t max_age) {
    return std::make_unique<H2o>(shape, budget, max_age);
  });
}

}  // namespace lapse
