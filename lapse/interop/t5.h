// T5 checkpoints as Hugging Face's transformers has them: a folder with config.json and model.safetensors.
#pragma once

#include <string>

#include "lapse/core/json.h"
#include "lapse/core/safetensors.h"
#include "lapse/model/transformer.h"

namespace lapse {

/// Their name of a parameter of ours; empty: T5 has none like it.
std::string t5_name(const std::string& name);

/// The size of a T5, which everything else of a ModelConfig follows from.
struct T5Config {
  int64_t vocabulary = 0;
  ModelConfig model;
};

/// From a config.json. Error, which begins with `origin`, if it is of another model, or of a T5 of another form than
/// version 1.0's: gated, untied, or with other buckets.
T5Config read_t5_config(const std::string& json, const std::string& origin);
/// The config.json of a model. What `theirs`, that of the checkpoint that was imported (null: none), says beside its
/// sizes stays. Error, naming the option, if the model is of another form than T5's.
Json t5_config_json(const T5Config& config, const Json& theirs = {});

/// Error if a tensor that tells a size is missing or of another one: a configuration is only text, and a model of its
/// sizes may not fit into memory.
void require_sizes(const SafetensorsFile& file, const T5Config& config);
/// Copies a checkpoint's weights into a model of its shape; what T5 does not have (a forgetting method's) stays as it
/// is. Error if a tensor is missing, of another shape, or has no place.
void load_t5(Transformer& model, const SafetensorsFile& file);
/// The types of a checkpoint's tensors by their names: "F16". transformers keeps some in float32 beside others in less.
Json t5_types(const SafetensorsFile& file);
/// The files of a folder, the last of pieces as T5's own tokenizer reads them.
constexpr const char* kT5Config = "config.json";
constexpr const char* kT5Weights = "model.safetensors";
constexpr const char* kT5Pieces = "spiece.model";
/// Writes them, with `config` as t5_config_json made it, each tensor in its type in `types` ("F32" without one), and
/// the bytes of `pieces` unless there are none. Error if the model has parameters that T5 has not.
void write_t5(Transformer& model, const Json& config, const Json& types, const std::string& pieces,
              const fs::path& folder);

/// The file of a folder's weights. Error, which says what to do, where there is none: they may be in another format.
fs::path t5_weights(const fs::path& folder);

}  // namespace lapse
