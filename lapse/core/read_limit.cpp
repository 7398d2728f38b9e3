#include "lapse/core/read_limit.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"

namespace lapse {

ReadLimit::ReadLimit(std::string origin, int part)
    : origin_(std::move(origin)),
      why_("more does not fit into the free memory of this machine"),
      most_(std::numeric_limits<size_t>::max()) {
  const int64_t available = available_memory();
  if (available > 0) most_ = static_cast<size_t>(available) / part;  // 0: the system does not say
}

void ReadLimit::lower(size_t most, const std::string& why) {
  if (most < most_) most_ = most, why_ = why;
}

void ReadLimit::refuse() const {
  fail(fmt::format("{}: larger than {}; {}", origin_, byte_size(static_cast<double>(most_)), why_));
}

}  // namespace lapse
