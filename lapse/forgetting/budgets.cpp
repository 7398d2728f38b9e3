#include "lapse/forgetting/budgets.h"

#include "lapse/core/error.h"

namespace lapse {

BudgetOptions& budgets_of(MethodOptions& method) {
  if (auto* options = dynamic_cast<BudgetOptions*>(&method)) return *options;
  fail("the forgetting method " + method.name() + " has no budgets");
}

void set_budget(Method& layer, int64_t rows) {
  auto* budgeted = dynamic_cast<BudgetedLayer*>(&layer);
  if (budgeted == nullptr) fail("this forgetting method has no budgets");
  budgeted->set_budget(rows);
}

bool has_budgets(const MethodOptions& method) { return dynamic_cast<const BudgetOptions*>(&method) != nullptr; }

}  // namespace lapse
