#include "lapse/forgetting/local_global.h"

#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/forgetting/pattern.h"

namespace lapse {
namespace {

class LocalGlobalOptions : public PatternOptions {
 public:
  std::string name() const override { return "local_global"; }
  Fields fields() override {
    return {max_span_field(),
            field("window", window_, "how many of the newest rows a query reads in local layers")
                .in(1, 1 << 22)
                .unit("rows"),
            field("every", every_, "the last of so many layers is global: it reads ages up to L")
                .in(1, 1024)
                .unit("layers")};
  }
  Fields reading_fields() override {
    return {budget_field("local layer"),
            field("every", every_, "the last of so many layers is global; default: as the run's configuration says")
                .in(1, 1024)
                .unit("layers")};
  }
  void check(const ModelShape& shape) const override {
    if (shape.layers < every_)
      fail(
          fmt::format("local_global: the last of every {} layers is global, and the model has {}; set "
                      "local_global.every, or --every "
                      "where a model is read, to at most {}",
                      every_, shape.layers, shape.layers));
  }
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t layer) const override {
    const bool global = layer % every_ == every_ - 1;
    return std::make_unique<Window>(shape, max_span_, global ? max_span_ : window_age(shape, budget_or(window_)));
  }

 private:
  int64_t window_ = 128, every_ = 4;
};

}  // namespace

std::unique_ptr<MethodOptions> local_global_options() { return std::make_unique<LocalGlobalOptions>(); }

}  // namespace lapse
