#include "lapse/core/read_limit.h"

#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"

namespace lapse {

void ReadLimit::lower(size_t most, const std::string& why) {
  if (most < most_) most_ = most, why_ = why;
}

void ReadLimit::ask_for_memory() {
  if (asked_) return;
  asked_ = true;
  const int64_t available = available_memory();
  if (available > 0)  // 0: the system does not say
    lower(static_cast<size_t>(available) / part_, "more does not fit into the free memory of this machine");
}

void ReadLimit::refuse() const {
  fail(fmt::format("{}: larger than {}; {}", origin_, byte_size(static_cast<double>(most_)), why_));
}

}  // namespace lapse
