#include "lapse/data/blocks.h"

#include "lapse/data/document.h"
#include "lapse/data/spans.h"
#include "lapse/data/window.h"

namespace lapse {

std::unique_ptr<TrainingBlocks> training_blocks(const DataConfig& config, const Vocabulary& vocabulary,
                                                const Tokens& tokens, int64_t batch, int64_t block, Random random) {
  if (config.corrupts_spans())
    return std::make_unique<TrainingSpans>(tokens, vocabulary, config, batch, block, std::move(random));
  if (!tokens.documents().empty())
    return std::make_unique<TrainingDocuments>(tokens, vocabulary.bos(), batch, block, std::move(random));
  if (config.in_windows())
    return std::make_unique<TrainingWindows>(tokens, vocabulary.bos(), batch, block, std::move(random));
  return std::make_unique<TrainingStreams>(tokens, batch, block, std::move(random));
}

std::unique_ptr<EvaluationBlocks> evaluation_blocks(const DataConfig& config, const Vocabulary& vocabulary,
                                                    const Tokens& tokens, int64_t batch, int64_t block,
                                                    bool drop_partial) {
  if (config.corrupts_spans())
    return std::make_unique<EvaluationSpans>(tokens, vocabulary, config, batch, block, drop_partial);
  if (!tokens.documents().empty()) return std::make_unique<EvaluationDocuments>(tokens, vocabulary.bos(), batch, block);
  if (config.in_windows())
    return std::make_unique<EvaluationWindows>(tokens, vocabulary.bos(), batch, block, drop_partial);
  return std::make_unique<EvaluationStreams>(tokens, batch, block, drop_partial);
}

}  // namespace lapse
