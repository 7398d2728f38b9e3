// Problems of prediction: what comes next in a text, or what a task asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lapse/core/json.h"
#include "lapse/train/problem.h"

namespace lapse {

/// Of the configuration's task, or else its text; see open_problem.
std::unique_ptr<Problem> prediction_problem(const Config& config, const Checkpoint* from);

/// Whether a part of the text with this checksum (Source::checksum) is another than in training. `feed`: what the
/// checkpoint says of its feed. False where that says nothing of the part.
bool is_another_text(const JsonObject& feed, const std::string& part, uint32_t checksum);

}  // namespace lapse
