// The ends of a run's model.
#pragma once

#include "lapse/data/vocabulary.h"
#include "lapse/model/ends.h"
#include "lapse/train/config.h"

namespace lapse {

/// `vocabulary`: of what the configuration reads.
ModelEnds ends_of(const Config& config, const Vocabulary& vocabulary);

/// An environment's words, as checkpoints hold them.
Vocabulary vocabulary_of(const EnvironmentShape& shape);

}  // namespace lapse
