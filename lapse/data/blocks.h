// How a run reads its text: in streams, in windows or by documents.
#pragma once

#include <memory>

#include "lapse/data/stream.h"

namespace lapse {

/// Blocks of a text as the config reads it: `batch` documents, where the tokens have some; windows of `block` tokens
/// (data.windows); or streams. The tokens must outlive them. Errors as TrainingStreams, TrainingWindows.
std::unique_ptr<TrainingBlocks> training_blocks(const DataConfig& config, const Vocabulary& vocabulary,
                                                const Tokens& tokens, int64_t batch, int64_t block, Random random);
std::unique_ptr<EvaluationBlocks> evaluation_blocks(const DataConfig& config, const Vocabulary& vocabulary,
                                                    const Tokens& tokens, int64_t batch, int64_t block,
                                                    bool drop_partial);

}  // namespace lapse
