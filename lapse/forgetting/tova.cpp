#include "lapse/forgetting/tova.h"

#include "lapse/forgetting/eviction.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

class Tova : public Eviction {
 public:
  Tova(const ModelShape& shape, int64_t budget, int64_t max_age) : Eviction(shape, budget, max_age, Chooses::layer) {}

 protected:
  at::Tensor score(const at::Tensor&, const at::Tensor& received) const override { return received.mean(1); }
  int64_t safe(int64_t) const override { return 1; }
};

}  // namespace

std::unique_ptr<MethodOptions> tova_options() {
  return eviction_options("tova", Chooses::layer, [](const ModelShape& shape, int64_t budget, int64_t max_age) {
    return std::make_unique<Tova>(shape, budget, max_age);
  });
}

}  // namespace lapse
