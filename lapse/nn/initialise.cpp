#include "lapse/nn/initialise.h"

#include "lapse/core/linear_weights.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

thread_local bool shapes_only = false;

at::TensorOptions options() { return at::TensorOptions(at::kFloat).device(shapes_only ? at::kMeta : at::kCPU); }

template <class Draw>
at::Tensor filled(at::IntArrayRef shape, const Draw& draw) {
  at::Tensor x = at::empty(shape, options());
  if (shapes_only) return x;
  float* data = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) data[i] = static_cast<float>(draw());
  return x.set_requires_grad(true);
}

}  // namespace

ShapesOnly::ShapesOnly() { shapes_only = true; }
ShapesOnly::~ShapesOnly() { shapes_only = false; }

at::Tensor normal_parameter(at::IntArrayRef shape, Random& random, double deviation) {
  return filled(shape, [&] { return deviation * random.normal(); });
}

at::Tensor uniform_parameter(at::IntArrayRef shape, double bound, Random& random) {
  return filled(shape, [&] { return bound * (2 * random.uniform() - 1); });
}

at::Tensor constant_parameter(at::IntArrayRef shape, double value) {
  return at::full(shape, value, options()).set_requires_grad(true);
}

at::Tensor linear_weight(int64_t out, int64_t in, const std::string& initialisation, Random& random) {
  if (shapes_only) return at::empty({out, in}, options());
  return at::tensor(linear_weights(out, in, initialisation, random)).view({out, in}).set_requires_grad(true);
}

}  // namespace lapse
