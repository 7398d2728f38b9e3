// Golden files of T5: what Hugging Face's transformers computes of a padded batch.
#pragma once

#include <vector>

#include "lapse/interop/golden.h"

namespace lapse {

/// Whether the file is one of these: its metadata have "t5", a config.json. "config" is a TOML of ours, which names the
/// decoder's forgetting method. Tensors: source [B, S], source_lengths [B], input and target [B, T], lengths [B],
/// logits [B, T, V], loss [1], and, by transformers' names, param.NAME and grad.NAME.
bool is_t5_golden(const SafetensorsFile& file);
std::vector<GoldenError> run_t5_golden(const SafetensorsFile& file, at::ScalarType type);

}  // namespace lapse
