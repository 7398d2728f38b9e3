#include "lapse/forgetting/local_global.h"

#include <algorithm>

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
  std::unique_ptr<Method> make(const ModelShape& shape, int64_t layer, Random&) const override {
    const bool global = layer % every_ == every_ - 1;
    return std::make_unique<Window>(shape,
                                    global ? max_span_ : std::min(window_age(shape, budget_or(window_)), max_span_));
  }

 private:
  int64_t window_ = 128, every_ = 4;
};

}  // namespace

std::unique_ptr<MethodOptions> local_global_options() { return std::make_unique<LocalGlobalOptions>(); }

}  // namespace lapse
