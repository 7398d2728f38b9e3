// Budgets: the part of a forgetting method that limits how many rows a layer holds outside training. Few methods have
// it. The search of `lapse prune` finds budgets.
#pragma once

#include <cstdint>
#include <vector>

#include "lapse/forgetting/method.h"

namespace lapse {

/// What the options of such a method are, besides MethodOptions.
class BudgetOptions {
 public:
  virtual ~BudgetOptions() = default;
  /// The rows of layer 0, 1, ..., as configured; empty: no limit.
  virtual std::vector<int64_t>& budgets() = 0;
};

/// What its layers are, besides Method.
class BudgetedLayer {
 public:
  virtual ~BudgetedLayer() = default;
  /// With Stored::projections at most so many rows, the newest included, from now on; 0: no limit. A sample that has no
  /// more rows is read as without a limit.
  virtual void set_budget(int64_t rows) = 0;
};

/// Error if the method has no budgets.
BudgetOptions& budgets_of(MethodOptions& method);
void set_budget(Method& layer, int64_t rows);

bool has_budgets(const MethodOptions& method);

}  // namespace lapse
