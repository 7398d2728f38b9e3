#include "lapse/forgetting/local.h"

#include "lapse/forgetting/pattern.h"

namespace lapse {
namespace {

class LocalOptions : public PatternOptions {
 public:
  std::string name() const override { return "local"; }
  Fields fields() override {
    return {max_span_field(),
            field("window", window_, "how many of the newest rows a query reads").in(1, 1 << 22).unit("rows")};
  }
  std::unique_ptr<Method> make_layer(const ModelShape& shape, int64_t) const override {
    return std::make_unique<Window>(shape, max_span_, window_age(shape, budget_or(window_)));
  }

 private:
  int64_t window_ = 128;
};

}  // namespace

std::unique_ptr<MethodOptions> local_options() { return std::make_unique<LocalOptions>(); }

}  // namespace lapse
