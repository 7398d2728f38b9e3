// The page of `lapse serve`: one file, which needs nothing else.
#pragma once

#include <string>

namespace lapse {

const std::string& page();

}  // namespace lapse
