#include "lapse/interop/golden.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/forgetting/registry.h"
#include "lapse/interop/golden_comparison.h"
#include "lapse/interop/golden_t5.h"
#include "lapse/interop/golden_table.h"
#include "lapse/model/tensor_file.h"
#include "lapse/model/transformer.h"
#include "lapse/ops/aten.h"

namespace lapse {
namespace {

using at::Tensor;

int64_t size_of(const GoldenMetadata& metadata, const std::string& key) {
  constexpr int64_t kLargest = 1 << 24;  // only a damaged file has more
  const auto size = golden_value<int64_t>(metadata, key);
  if (size >= 1 && size <= kLargest) return size;
  fail(fmt::format("the golden file's metadata: '{}' is {}; give 1 ... {}", key, size, kLargest));
}

ModelConfig model_config(const GoldenMetadata& metadata) {
  ModelConfig config;
  config.width = size_of(metadata, "hid_sz");
  config.feed_forward = size_of(metadata, "inner_hid_sz");
  config.layers = size_of(metadata, "nlayers");
  config.heads = size_of(metadata, "nheads");
  config.head_dim = size_of(metadata, "head_dim");
  config.norm = golden_value<bool>(metadata, "pre_norm") ? "pre" : "post";
  return config;
}

/// The method's options as the metadata have them.
std::unique_ptr<MethodOptions> method_options(const GoldenEntry& entry, const GoldenMetadata& metadata) {
  auto options = find_method(entry.method).options();
  for (const Field& field : options->fields()) {
    if (const auto value = entry.constants.find(field.name); value != entry.constants.end())
      set_field(field, value->second, field.name);
    const auto key = entry.options.find(field.name);
    if (key == entry.options.end()) continue;
    const bool is_truth = std::holds_alternative<bool*>(field.value);
    const std::string value =
        is_truth ? golden_value<bool>(metadata, key->second) ? "true" : "false" : golden_text(metadata, key->second);
    set_field(field, value, fmt::format("the golden file's metadata: '{}'", key->second));
  }
  return options;
}

/// The golden file's name of a parameter of ours.
std::string golden_name(const std::string& name, const GoldenEntry& entry) {
  static const std::map<std::string, std::string> names = {
      {"embedding", "in_emb.weight"},          {"position", "layers.0.attn.attn.key_pe"},
      {"norm.weight", "out_norm.weight"},      {"norm.bias", "out_norm.bias"},
      {"output.weight", "out.out_emb.weight"}, {"output.bias", "out.out_emb.bias"},
      {"query", "attn.proj_query.weight"},     {"key", "attn.proj_key.weight"},
      {"value", "attn.proj_val.weight"},       {"out", "attn.proj_out.weight"},
      {"ff1.weight", "ff.fc1.weight"},         {"ff1.bias", "ff.fc1.bias"},
      {"ff2.weight", "ff.fc2.weight"},         {"ff2.bias", "ff.fc2.bias"},
      {"norm1.weight", "norm1.weight"},        {"norm1.bias", "norm1.bias"},
      {"norm2.weight", "norm2.weight"},        {"norm2.bias", "norm2.bias"},
  };
  std::string prefix, rest = name;
  if (name.rfind("layers.", 0) == 0) {
    const size_t dot = name.find('.', 7) + 1;
    prefix = name.substr(0, dot), rest = name.substr(dot);
  }
  for (const auto* of_files : {&names, &entry.parameters})
    if (const auto found = of_files->find(rest); found != of_files->end()) return prefix + found->second;
  return name;
}

/// A golden parameter or gradient in our shape. Their position table is [1, D, P], column p for age P - p.
Tensor in_our_shape(const Tensor& theirs, const std::string& name, const Tensor& ours) {
  const bool position = name == "position";
  const bool fits = position ? theirs.dim() == 3 && theirs.size(1) == ours.size(1) && theirs.size(2) == ours.size(0)
                             : theirs.numel() == ours.numel();
  if (!fits)
    fail(fmt::format("the golden file's tensor for '{}' does not have the shape that its metadata ask for", name));
  return (position ? theirs[0].t().flip(0) : theirs.view(ours.sizes())).to(ours.scalar_type());
}

/// Metadata are only text: a model of their sizes may not fit into memory, so they are compared before it is made.
void require_sizes(const SafetensorsFile& file, const ModelConfig& model, int64_t vocabulary, int64_t positions) {
  const std::pair<const char*, std::vector<int64_t>> shapes[] = {
      {"param.in_emb.weight", {vocabulary, model.width}},
      {"param.layers.0.attn.proj_query.weight", {model.heads * model.head_dim, model.width}},
      {"param.layers.0.ff.fc1.weight", {model.feed_forward, model.width}},
      {"param.layers.0.attn.attn.key_pe", {1, model.head_dim, positions}}};
  for (const auto& [name, shape] : shapes)
    if (file.tensor(name).shape != shape)
      fail(fmt::format("the golden file's tensor '{}' does not have the shape that its metadata ask for", name));
  if (model.layers > std::ssize(file.tensors()))
    fail(fmt::format("the golden file's metadata: 'nlayers' is {}, and there are only {} tensors", model.layers,
                     file.tensors().size()));
}

class GoldenRun {
 public:
  GoldenRun(const SafetensorsFile& file, at::ScalarType type)
      : file_(file),
        entry_(golden_entry(file.meta("method"))),
        vocabulary_(size_of(file.metadata(), "vocab_sz")),
        block_(size_of(file.metadata(), "mem_sz")) {
    const ModelConfig config = model_config(file.metadata());
    const auto options = method_options(entry_, file.metadata());
    require_sizes(file, config, vocabulary_, options->positions(shape_of(config, block_)));
    model_ = std::make_unique<Transformer>(config, *options, vocabulary_, block_, Random(0, "golden"));
    model_->to(type);
    for (auto& [name, tensor] : model_->parameters())
      tensor->detach().copy_(in_our_shape(load("param." + golden_name(name, entry_)), name, *tensor));
  }

  std::vector<GoldenError> run() {
    const auto blocks = size_of(file_.metadata(), "blocks");
    batch_ = size_of(file_.metadata(), "batch");
    load_tokens("input.0");  // of this batch, before there is a memory of as many streams
    auto memory = model_->begin(batch_, Stored::inputs);
    for (int64_t k = 0; k < blocks; ++k) run_block(k, k + 1 == blocks, memory);
    return comparison_.errors();
  }

 private:
  Tensor load(const std::string& name) const { return to_tensor(file_.tensor(name)); }
  Tensor load_tokens(const std::string& name) const {
    const Tensor tokens = load(name);
    require_golden_shape(name, tokens, {batch_, block_});
    if (tokens.scalar_type() != at::kLong || tokens.min().item<int64_t>() < 0 ||
        tokens.max().item<int64_t>() >= vocabulary_)
      fail(fmt::format("the golden file's tensor '{}' holds what is no token: give int64 from 0 to {}", name,
                       vocabulary_ - 1));
    return tokens;
  }
  bool has(const std::string& name) const { return file_.tensors().count(name) > 0; }

  void run_block(int64_t k, bool last, ModelMemory& memory) {
    const auto suffix = fmt::format(".{}", k);
    BlockDraws draws;
    if (has("noise" + suffix)) draws.uniform = load("noise" + suffix).item<double>();
    const auto y = model_->forward(load_tokens("input" + suffix), memory, {.observe = true, .exact = true}, draws);
    const Tensor log_prob = at::log_softmax(y.logits, 2);
    const Tensor loss = at::nll_loss(log_prob.flatten(0, 1), load_tokens("target" + suffix).flatten());
    comparison_.compare("log_prob", "log_prob" + suffix, log_prob, load("log_prob" + suffix));
    comparison_.compare("task_loss", "task_loss" + suffix, loss.view(1), load("task_loss" + suffix));
    comparison_.compare("aux_loss", "aux_loss" + suffix, y.cost.view(1), load("aux_loss" + suffix));
    for (size_t l = 0; l < y.reports.size(); ++l)
      compare_layer(fmt::format("{}.{}", suffix, l), y.reports[l], memory.layers[l]);
    if (!last) return;
    (loss + y.cost).backward();
    for (auto& [name, tensor] : model_->parameters()) {
      const std::string theirs = "grad." + golden_name(name, entry_);
      const Tensor gradient = tensor->grad().defined() ? tensor->grad() : at::zeros_like(*tensor);
      comparison_.compare("grad", theirs, gradient, in_our_shape(load(theirs), name, *tensor));
    }
  }

  void compare_layer(const std::string& suffix, const LayerReport& report, const MemoryTable& table) {
    for (const auto& [name, values] : report.told)
      if (has(name + suffix)) comparison_.compare(name, name + suffix, values, load(name + suffix));
    if (!has("alive" + suffix)) return;
    const Tensor sample = table.sample().masked_select(
        at::logical_not(is_kind(table.kind(), RowKind::start)));  // what a stream starts from does not
    const Tensor alive = at::bincount(sample, {}, table.samples());
    const Tensor theirs = load("alive" + suffix);
    require_golden_shape("alive" + suffix, theirs, alive.sizes());
    comparison_.add("alive", "alive" + suffix, (alive != theirs).sum().item<double>());
  }

  const SafetensorsFile& file_;
  const GoldenEntry& entry_;
  int64_t vocabulary_, block_, batch_ = 0;
  std::unique_ptr<Transformer> model_;
  GoldenComparison comparison_;
};

/// A file of an operator's inputs and of what follows from them, rather than of a model.
bool is_operator(const SafetensorsFile& file) { return file.tensors().count("q") > 0; }

std::vector<GoldenError> run_operator(const SafetensorsFile& file, at::ScalarType type) {
  const GoldenEntry& entry = golden_entry(file.meta("method"));
  if (entry.outputs == nullptr)
    fail("there are no golden files of " + entry.method + "'s operator, only of its models");
  Columns inputs;
  for (const auto& [name, entry] : file.tensors()) {
    const Tensor tensor = to_tensor(entry);
    inputs[name] = tensor.is_floating_point() ? tensor.to(type) : tensor;
  }
  GoldenComparison comparison;
  for (const auto& [name, tensor] : entry.outputs(inputs, file.metadata()))
    comparison.compare(name.substr(0, name.find('.')), name, tensor, to_tensor(file.tensor(name)));
  return comparison.errors();
}

}  // namespace

std::vector<GoldenError> run_golden(const SafetensorsFile& file, at::ScalarType type) {
  const std::string path = file.path().string();
  try {
    if (is_t5_golden(file)) return run_t5_golden(file, type);
    if (!file.metadata().contains("method"))
      fail(
          "not a golden file: its metadata have no 'method'; tests/golden has some, and tests/make_golden.py makes "
          "them");
    return is_operator(file) ? run_operator(file, type) : GoldenRun(file, type).run();
  } catch (const Error& error) {  // a call may compare many files: say which
    const std::string message = error.what();
    fail(message.rfind(path, 0) == 0 ? message : path + ": " + message);
  } catch (const c10::Error& error) {
    fail(path + ": " + error.what_without_backtrace());
  }
}

}  // namespace lapse
