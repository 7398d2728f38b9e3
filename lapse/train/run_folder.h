// The folder of a run: what lies in it, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "lapse/core/file.h"

namespace lapse {

/// The folder of a run, absolute, of itself or of a checkpoint in it.
fs::path run_folder(const fs::path& run_or_file);

/// What lies in a run's folder, beside the lock and TensorBoard's files.
fs::path checkpoints_folder(const fs::path& run);
fs::path config_path(const fs::path& run);
fs::path metrics_path(const fs::path& run);
/// The rounds of a search for budgets, and the checkpoint with those that it found (`lapse prune`).
fs::path prune_rounds_path(const fs::path& run);
fs::path pruned_path(const fs::path& run);
/// All of these files, but the checkpoints.
std::vector<fs::path> files_beside_checkpoints(const fs::path& run);

/// Where a run's checkpoint of an update lies.
fs::path checkpoint_path(const fs::path& run, int64_t update);

/// The update in such a name; -1 for any other, such as a user's own copy "update-best.safetensors" or
/// "update-9.safetensors".
int64_t update_of(const fs::path& path);

/// Before the checkpoint of `update` is written: those after `last`, from which the run goes on, are damaged ones that
/// were passed over. They are named .damaged, so that no whole one is deleted for them.
void set_aside_damaged(const fs::path& run, int64_t last, int64_t update);

/// Deletes the checkpoints that are older than the newest `keep`, of which that of `update` is the first.
void remove_older_checkpoints(const fs::path& run, int64_t update, int64_t keep);

/// A run's checkpoints, newest first; empty if there is none. Error if their folder cannot be listed.
std::vector<fs::path> checkpoints_of(const fs::path& run);

}  // namespace lapse
