// Streams in a file: their memory, to read on later or in another process.
#pragma once

#include <string>

#include "lapse/core/file.h"
#include "lapse/model/transformer.h"

namespace lapse {

struct SavedStreams {
  ModelMemory memory;  ///< of projections
  at::Tensor logits;   ///< [B, V] after each stream's last token; undefined: nothing was read, or nothing can follow
  Columns more = {};   ///< what else the caller keeps
};

/// Writes streams to a safetensors file, atomically. `described` says what reads them (Reader::described). c10::Error
/// for memories of inputs, torn ones and those with sources.
void save_streams(const fs::path& file, const SavedStreams& streams, const std::string& described);

/// What was written there, on the model's device. Error if the file is none of these or damaged, if it was written with
/// another `described`, and if its memory is none that the model, which reads tokens, could have. One stream on a CPU
/// goes on bit for bit as if it had not been saved; several streams, and those on a GPU, up to rounding
/// (BlockOptions::exact).
SavedStreams load_streams(const fs::path& file, Transformer& model, const std::string& described);

}  // namespace lapse
