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

struct TextChecksums {
  uint32_t ids = 0, bytes = 0;  ///< Source::checksum, Source::bytes_checksum
};
/// Whether a part of the text with these checksums is another than in training. `feed`: what the checkpoint says of its
/// feed. False where that says nothing of the part.
bool is_another_text(const JsonObject& feed, const std::string& part, const TextChecksums& now);

}  // namespace lapse
