// Configuration values as JSON.
#pragma once

#include "lapse/core/config.h"
#include "lapse/core/json.h"

namespace lapse {

/// {"name": value, ...}, with the values that the fields have now.
Json to_json(const Fields& fields);

}  // namespace lapse
