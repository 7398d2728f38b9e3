// When a folder's run may be begun, and which configuration it may be resumed with.
#pragma once

#include "lapse/train/checkpoint.h"

namespace lapse {

/// Error, naming the first field that differs, unless `config` describes the checkpoint's run. The run's length, what
/// is recorded when, threads, device and paths may differ.
void require_same_run(const Checkpoint& checkpoint, const Config& config);

/// Error if the folder, which has no checkpoints, has metrics of a run, or a configuration that is no run's: to begin
/// there would destroy them.
void require_no_history(const fs::path& run);

/// Writes the run's configuration into its folder, unless the values that are there are the same: someone may have
/// added notes.
void write_settings(const fs::path& run, const Config& config);

/// Error if a run cannot be begun in the folder: there is one, or its metrics.
void require_no_run(const fs::path& run);

}  // namespace lapse
