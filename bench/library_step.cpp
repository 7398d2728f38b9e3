#include "bench/library_step.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>

#include "bench/eager_model.h"
#include "lapse/core/error.h"
#include "lapse/ops/aten.h"

namespace lapse::bench {

using at::Tensor;

LibraryStep::LibraryStep(const StepShape& shape, const std::string& precision)
    : LibraryStep(shape, precision, make_model(shape)) {}

LibraryStep::LibraryStep(const StepShape& shape, const std::string& precision, Transformer model)
    : shape_(shape),
      learner_(std::move(model), language_modelling(),
               {.batch = shape.batch,
                .bfloat16 = precision == "bf16",
                .optimiser = {.rate = kRate, .warmup = 0, .clip = kClip},
                .trains = [](const std::string& parameter) { return !of_spans(parameter); }}),
      options_{.exact = true, .bfloat16 = precision == "bf16"} {}

double LibraryStep::update(const Tensor& input, const Tensor& target) {
  const Update made = learner_.update(Batch(input, target));
  if (!std::isfinite(made.loss) || !std::isfinite(made.gradient_norm))
    fail(fmt::format("loss {}, gradient norm {}", made.loss, made.gradient_norm));
  return made.loss;
}

void LibraryStep::read() {
  const at::NoGradGuard no_grad;
  model().forward(random_tokens(shape_, shape_.block), learner_.memory()[0], options_, model().draw(learner_.draws()));
}

void LibraryStep::fill() {
  for (int64_t seen = 0; seen < shape_.memory; seen += shape_.block) read();
  require_full();
}

void LibraryStep::require_full() const {
  for (size_t l = 0; l < memory().layers.size(); ++l)
    for (int64_t b = 0; b < shape_.batch; ++b)
      if (const int64_t rows = memory().layers[l].rows_of(b); rows != shape_.memory)
        fail(fmt::format("layer {} keeps {} rows of sample {}, not {}", l, rows, b, shape_.memory));
}

void check_step() {
  constexpr double kTolerance = 1e-4;  // float32, and Adam amplifies the rounding of gradients that are nearly 0
  const StepShape shape = tiny_shape();
  LibraryStep library(shape, "float32");
  EagerModel eager(shape, library.model().parameters());
  for (int update = 1; update <= 6; ++update) {  // of 8 timesteps each: the memory of 24 fills, then rolls
    const Tensor tokens = random_tokens(shape, shape.block + 1);
    const Tensor input = tokens.narrow(1, 0, shape.block), target = tokens.narrow(1, 1, shape.block);
    const double got = library.update(input, target), expected = eager.update(input, target);
    if (!(std::abs(got - expected) <= kTolerance * std::abs(expected)))
      fail(fmt::format("update {}: the library's loss is {}, the eager model's {}", update, got, expected));
  }
  library.require_full();
}

}  // namespace lapse::bench
