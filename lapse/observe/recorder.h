// What a model remembers of a text, and for how long: seen in its memory tables at every single token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lapse/data/source.h"
#include "lapse/model/transformer.h"

namespace lapse {

/// One layer's memory. Every vector has one element per token that was read.
struct LayerRecord {
  /// How many later queries could read the token's row. Where `there`, the text ended before that did.
  std::vector<int64_t> held;
  std::vector<uint8_t> there;  ///< a query after the window's or stream's last could have read it still
  std::vector<int64_t> sizes;  ///< |C_t|: how many rows the token's query could read
  std::map<std::string, std::vector<double>> told;  ///< what the method told of the row last, while it was there

  int64_t largest() const;
  double mean() const;  ///< of the sizes
};

struct MemoryRecord {
  std::vector<int32_t> tokens;  ///< as read, BOS of each window included
  std::vector<double> nats;     ///< negative log-likelihood of what follows each token; NaN where nothing is scored
  std::vector<int32_t> ends;    ///< of each window or stream, what followed its last token; a task's label, or -1
  std::vector<int64_t> begins;  ///< the tokens that were read with empty memory: of each window or stream the first
  std::vector<LayerRecord> layers;
  Score score;
  bool stopped = false;  ///< by Ctrl-C, before the end
};

struct RecorderOptions {
  int64_t tokens = 0;                               ///< read at most so many; 0: all
  std::function<void(int64_t done)> progress = {};  ///< after each token; may be empty
};

/// Reads blocks of one stream, or of one window after another, token by token with fixed weights. c10::Error if a block
/// has more than one sample; Error if there is nothing to read.
MemoryRecord record_memory(Transformer& model, EvaluationBlocks& blocks, const RecorderOptions& options = {});

}  // namespace lapse
