// Which configuration a run may be resumed with.
#pragma once

#include "lapse/train/checkpoint.h"

namespace lapse {

/// Error, naming the first field that differs, unless `config` describes the checkpoint's run. The run's length, what
/// is recorded when, threads and paths may differ.
void require_same_run(const Checkpoint& checkpoint, Config& config);

}  // namespace lapse
