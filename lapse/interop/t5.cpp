#include "lapse/interop/t5.h"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "lapse/core/error.h"
#include "lapse/model/tensor_file.h"
#include "lapse/nn/buckets.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

/// T5 1.0, but for sizes and dropout.
void set_form(ModelConfig& model) {
  model.norm = "pre", model.norm_kind = "rms", model.norm_epsilon = 1e-6;
  model.activation = "relu", model.biases = false, model.normed_heads = false;
  model.attend_self = true, model.scaled_logits = false, model.positions = "buckets";
  model.initialisation = "normal", model.input = "tokens", model.output = "tied";
}

/// What comes after "layers.N." in ours -> after "block.N." in theirs.
std::string name_in_block(const std::string& name, bool decoder) {
  static const std::map<std::string, std::string> projections = {
      {"query", "q"}, {"key", "k"}, {"value", "v"}, {"out", "o"}};
  const std::string last = decoder ? "layer.2." : "layer.1.";
  if (name == "ff1.weight") return last + "DenseReluDense.wi.weight";
  if (name == "ff2.weight") return last + "DenseReluDense.wo.weight";
  if (name == "norm1.weight") return "layer.0.layer_norm.weight";
  if (name == "source.norm.weight") return "layer.1.layer_norm.weight";
  if (name == "norm2.weight") return last + "layer_norm.weight";
  const bool source = name.starts_with("source.");
  const auto found = projections.find(source ? name.substr(7) : name);
  if (found == projections.end()) return "";
  return fmt::format("{}.{}.weight", source ? "layer.1.EncDecAttention" : "layer.0.SelfAttention", found->second);
}

/// Of one kind of value, or `otherwise` if there is none.
template <class T>
T value_of(const Json& json, const char* key, const T& otherwise, const std::string& origin) {
  try {
    return json.value(key, otherwise);
  } catch (const Json::exception&) {
    fail(fmt::format("{}: '{}' is of another kind than it should be", origin, key));
  }
}

int64_t whole_of(const Json& json, const char* key, int64_t otherwise, const std::string& origin) {
  return json.contains(key) ? JsonObject(json, origin).whole(key, std::numeric_limits<int64_t>::min()) : otherwise;
}

int64_t size_of(const Json& json, const char* key, const std::string& origin) {
  constexpr int64_t kLargest = 1 << 24;
  return JsonObject(json, origin).whole(key, 1, kLargest);
}

/// What transformers also writes under another name where it shares the tensor.
bool is_shared_copy(const std::string& name) {
  return name == "encoder.embed_tokens.weight" || name == "decoder.embed_tokens.weight" || name == "lm_head.weight";
}

/// In the published checkpoints of T5 1.0, and read by nobody: cross-attention has no positions.
constexpr const char* kUnused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";

[[noreturn]] void fail_of_shape(const SafetensorsFile& file, const std::string& name) {
  fail(fmt::format("{}: '{}' does not have the shape that the configuration asks for", file.path().string(), name));
}

}  // namespace

std::string t5_name(const std::string& name) {
  if (name == "embedding") return "shared.weight";
  const bool decoder = !name.starts_with("encoder.");
  const std::string stack = decoder ? "decoder." : "encoder.", rest = decoder ? name : name.substr(8);
  if (rest == "position") return stack + "block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  if (rest == "norm.weight") return stack + "final_layer_norm.weight";
  if (!rest.starts_with("layers.")) return "";
  const size_t dot = rest.find('.', 7);
  const std::string inner = name_in_block(rest.substr(dot + 1), decoder);
  return inner.empty() ? "" : fmt::format("{}block.{}.{}", stack, rest.substr(7, dot - 7), inner);
}

T5Config read_t5_config(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || value_of<std::string>(json, "model_type", "", origin) != "t5")
    fail(origin + ": not the configuration of a T5 (model_type \"t5\")");
  const auto require = [&](bool right, const std::string& what) {
    if (!right) fail(fmt::format("{}: {}; only T5 version 1.0 can be read", origin, what));
  };
  const auto gates = value_of<std::string>(json, "feed_forward_proj", "relu", origin);
  require(gates == "relu", fmt::format("its feed-forward layers are \"{}\"", gates));
  require(value_of(json, "tie_word_embeddings", true, origin), "its output has weights of its own");
  require(value_of(json, "scale_decoder_outputs", true, origin),
          "its output is not scaled, as where it has weights of its own");
  require(whole_of(json, "relative_attention_num_buckets", kBuckets, origin) == kBuckets,
          "its relative positions have another number of buckets");
  // What reads and generates here takes these for granted (data/spans.h).
  for (const auto& [name, id] :
       {std::pair{"pad_token_id", int64_t{0}}, {"decoder_start_token_id", int64_t{0}}, {"eos_token_id", int64_t{1}}})
    require(whole_of(json, name, id, origin) == id, fmt::format("its {} is not {}", name, id));
  T5Config config{size_of(json, "vocab_size", origin), {}};
  ModelConfig& model = config.model;
  set_form(model);
  model.width = size_of(json, "d_model", origin), model.head_dim = size_of(json, "d_kv", origin);
  model.heads = size_of(json, "num_heads", origin), model.feed_forward = size_of(json, "d_ff", origin);
  model.encoder_layers = size_of(json, "num_layers", origin);
  model.layers = json.contains("num_decoder_layers") && !json["num_decoder_layers"].is_null()
                     ? size_of(json, "num_decoder_layers", origin)
                     : model.encoder_layers;
  model.bucket_distance = whole_of(json, "relative_attention_max_distance", model.bucket_distance, origin);
  model.norm_epsilon = value_of(json, "layer_norm_epsilon", 1e-6, origin);
  const double dropout = value_of(json, "dropout_rate", 0.1, origin);
  for (double* rate : {&model.dropout, &model.embedding_dropout, &model.residual_dropout, &model.output_dropout})
    *rate = dropout;
  for (const auto& field : model.fields()) set_field(field, field_to_toml(field), origin + ": model." + field.name);
  return config;
}

Json t5_config_json(const T5Config& config, const Json& theirs) {
  ModelConfig ours = config.model, form = config.model;
  set_form(form);
  form.norm_epsilon = ours.norm_epsilon;
  form.initialisation = ours.initialisation;  // of which trained weights know nothing
  form.embedding_dropout = form.residual_dropout = form.output_dropout = ours.dropout;
  const Fields is = ours.fields(), should = form.fields();
  for (size_t i = 0; i < is.size(); ++i)
    if (field_to_toml(is[i]) != field_to_toml(should[i]))
      fail(fmt::format("a T5 has model.{} = {}, and this model {}", is[i].name, field_to_toml(should[i]),
                       field_to_toml(is[i])));
  if (ours.encoder_layers == 0) fail("a T5 has an encoder, and this model has none (model.encoder_layers)");
  const Json sizes = {{"vocab_size", config.vocabulary},
                      {"d_model", ours.width},
                      {"d_kv", ours.head_width()},
                      {"num_heads", ours.heads},
                      {"d_ff", ours.inner_width()},
                      {"num_layers", ours.encoder_layers},
                      {"num_decoder_layers", ours.layers},
                      {"relative_attention_max_distance", ours.bucket_distance},
                      {"layer_norm_epsilon", ours.norm_epsilon},
                      {"dropout_rate", ours.dropout}};
  Json all = {{"architectures", {"T5ForConditionalGeneration"}},
              {"model_type", "t5"},
              {"is_encoder_decoder", true},
              {"relative_attention_num_buckets", kBuckets},
              {"feed_forward_proj", "relu"},
              {"tie_word_embeddings", true},
              {"pad_token_id", 0},
              {"eos_token_id", 1},
              {"decoder_start_token_id", 0}};
  if (theirs.is_object()) all.update(theirs);
  all.update(sizes);
  return all;
}

fs::path t5_weights(const fs::path& folder) {
  const fs::path file = folder / kT5Weights;
  if (is_there(file)) return file;
  if (is_there(folder / "model.safetensors.index.json"))
    fail(folder.string() + ": its weights are in several files; save them in one (save_pretrained, max_shard_size)");
  if (is_there(folder / "pytorch_model.bin"))
    fail(folder.string() + ": its weights are in pytorch_model.bin; save them as safetensors (save_pretrained)");
  fail(folder.string() + ": there is no model.safetensors");
}

void require_sizes(const SafetensorsFile& file, const T5Config& config) {
  const ModelConfig& model = config.model;
  const auto require = [&](const std::string& name, const std::vector<int64_t>& shape) {
    if (file.tensor(t5_name(name)).shape != shape) fail_of_shape(file, t5_name(name));
  };
  require("embedding", {config.vocabulary, model.width});
  for (const auto& [stack, layers] : {std::pair{"encoder.", model.encoder_layers}, {"", model.layers}})
    for (int64_t l = 0; l < layers; ++l) {
      require(fmt::format("{}layers.{}.query", stack, l), {model.heads * model.head_width(), model.width});
      require(fmt::format("{}layers.{}.ff1.weight", stack, l), {model.inner_width(), model.width});
    }
}

void load_t5(Transformer& model, const SafetensorsFile& file) {
  std::set<std::string> known;
  for (auto& [name, tensor] : model.parameters()) {
    const std::string theirs = t5_name(name);
    if (theirs.empty()) continue;
    known.insert(theirs);
    const TensorEntry entry = file.tensor(theirs);
    if (!is_known_type(entry.dtype))
      fail(fmt::format("{}: '{}' is of type {}, which cannot be read; save it in another", file.path().string(), theirs,
                       entry.dtype));
    const Tensor loaded = to_tensor(entry);
    if (loaded.sizes() != tensor->sizes()) fail_of_shape(file, theirs);
    if (!loaded.is_floating_point()) fail(fmt::format("{}: '{}' holds whole numbers", file.path().string(), theirs));
    tensor->detach().copy_(loaded);
  }
  for (const auto& [name, entry] : file.tensors())
    if (!known.contains(name) && name != kUnused &&
        !(is_shared_copy(name) && entry.bytes == file.tensor("shared.weight").bytes))
      fail(fmt::format("{}: there is no place in the model for its tensor '{}'", file.path().string(), name));
}

Json t5_types(const SafetensorsFile& file) {
  Json types = Json::object();
  for (const auto& [name, entry] : file.tensors()) types[name] = entry.dtype;
  return types;
}

void write_t5(Transformer& model, const Json& config, const Json& types, const std::string& pieces,
              const fs::path& folder) {
  const std::string json = config.dump(2) + "\n";
  std::vector<Tensor> kept;  // what the entries view
  std::map<std::string, TensorEntry> entries;
  for (auto& [name, tensor] : model.parameters()) {
    const std::string theirs = t5_name(name);
    if (theirs.empty()) fail("a T5 has no place for the parameter '" + name + "', which the forgetting method learned");
    const std::string type = types.value(theirs, std::string("F32"));
    const at::ScalarType written = type == "BF16" ? at::kBFloat16 : type == "F16" ? at::kHalf : at::kFloat;
    kept.push_back(tensor->detach().to(at::kCPU, written).contiguous());
    entries[theirs] = to_entry(kept.back());
  }
  make_folder(folder);
  try {
    write_safetensors(folder / kT5Weights, entries, {{"format", "pt"}});
    if (!pieces.empty()) write_file(folder / kT5Pieces, pieces);
    write_file(folder / kT5Config, json);
  } catch (...) {  // nothing half written: the same command is to work again
    std::error_code ignored;
    for (const char* file : {kT5Weights, kT5Pieces}) fs::remove(folder / file, ignored);
    throw;
  }
}

}  // namespace lapse
