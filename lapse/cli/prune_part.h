// One part of the text that `lapse prune` reads, and the blocks of it.
#pragma once

#include <memory>
#include <string>

#include "lapse/data/blocks.h"
#include "lapse/data/corpus.h"
#include "lapse/read/reader.h"
#include "lapse/train/evaluate.h"

namespace lapse {

/// Ctrl-C came while a part was read.
struct Interrupted {};

/// Which text, and how its documents are found and chosen.
struct PruneText {
  std::string data, data_documents;
  double min_fill = 0;
};

/// Documents, whole windows, or streams, as many as there are tokens to fill the memory of each twice.
struct PrunePart {
  Tokens tokens;
  int64_t batch, block;
  int64_t blocks = 0;  ///< at most; 0: all

  /// `name`: the option that chose `split`, with which errors begin. `limit`: about so many tokens; 0: all.
  PrunePart(const PruneText& text, const Reader& reader, const std::string& name, const std::string& split,
            int64_t limit);
  std::unique_ptr<EvaluationBlocks> open(const Reader& reader) const;
  /// Throws Interrupted.
  EvaluationResult read(Transformer& model, const Reader& reader) const;

 private:
  std::string name_;
};

}  // namespace lapse
