// How the samples of a run are shared out among the ranks of a group, and put together again for a checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lapse/core/group.h"
#include "lapse/model/transformer.h"
#include "lapse/train/checkpoint.h"
#include "lapse/train/config.h"

namespace lapse {

/// The parts of a batch: train.parts, or one a rank if that is more. Error if the ranks cannot share them evenly.
int64_t parts_of(const TrainConfig& train, const Group& group);
/// The same of a validation, of which every part has a stream. Error if there are fewer streams than ranks.
int64_t validation_parts_of(const TrainConfig& train, const Group& group);

/// Memory of the same samples in so many equal parts.
std::vector<ModelMemory> in_parts(const std::vector<ModelMemory>& memory, int64_t parts);
/// This rank's of all parts.
std::vector<ModelMemory> share_of(const std::vector<ModelMemory>& memory, const Group& group);

/// Every rank's tensors, by rank, on rank 0; nothing on the others.
std::vector<Columns> gather(Group& group, const Columns& tensors);
/// Tensors of the samples of each rank, [B / size, ...], as those of all, [B, ...], on rank 0; else nothing.
Columns gather_samples(Group& group, const Columns& tensors);

/// What rank 0 finds, on every rank. An Error of it is one of all.
std::string found_by_first(Group& group, const std::function<std::string()>& find);
/// Checkpoint::open, where all ranks open the file that rank 0 finds.
Checkpoint open_together(Group& group, const fs::path& run_or_file);
/// Error, naming the first rank that differs, if the ranks do not all say the same of what they are about to do. Lines
/// "name = value".
void require_agreement(Group& group, const std::string& text);

}  // namespace lapse
