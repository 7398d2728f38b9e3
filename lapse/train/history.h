// How far the run of a checkpoint has come.
#pragma once

#include <cstdint>

#include "lapse/core/json.h"

namespace lapse {

struct RunHistory {
  int64_t update = 0;                ///< finished updates
  Json validations = Json::array();  ///< objects of numbers: update, loss, ...
};

/// Out of the state that the trainer wrote (Checkpoint::state). Error if it is not of that form.
RunHistory history_of(const JsonObject& state);

}  // namespace lapse
