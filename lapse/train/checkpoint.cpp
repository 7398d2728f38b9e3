#include "lapse/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lapse/core/error.h"
#include "lapse/memory/samples.h"
#include "lapse/model/tensor_file.h"
#include "lapse/nn/initialise.h"
#include "lapse/ops/aten.h"
#include "lapse/train/ends.h"
#include "lapse/train/run_folder.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr const char* kFormat = "1";
constexpr int64_t kMostSteps = int64_t{1} << 40;  // far from where sums would overflow

void copy_tensor(const SafetensorsFile& file, const std::string& name, const Tensor& into) {
  const Tensor loaded = to_tensor(file.tensor(name));
  if (loaded.sizes() != into.sizes())
    fail(
        fmt::format("{0}: '{1}' does not have the shape that the configuration asks for: [{2}], not [{3}]; `lapse info "
                    "{0}` shows its [model] and train.block, which sizes depend on",
                    file.path().string(), name, fmt::join(loaded.sizes(), ", "), fmt::join(into.sizes(), ", ")));
  into.detach().copy_(loaded);
  if (into.numel() == 0) return;
  const auto [least, most] = at::aminmax(into.detach());  // NaN, where there is one
  if (!std::isfinite(least.item<double>()) || !std::isfinite(most.item<double>()))
    fail(
        fmt::format("{}: '{}' holds numbers that are not finite, as after a run that diverged; use a checkpoint from "
                    "before that",
                    file.path().string(), name));
}

// A table of training holds what each layer reads, and what its forgetting method writes.
void require_columns(const MemoryTable& table, const Method& method) {
  if (table.rows() == 0) return;
  const Tensor& hidden = table.column("hidden");
  Columns like{{"time", table.time()}, {"kind", table.kind()}, {"hidden", hidden}};
  for (const auto& [name, values] : method.state({1, 1}, hidden.options())) like[name] = values.flatten(0, 1);
  check_columns(table, like);
}

// Rows in files written before tables had a kind: pooled rows lay 2^40 timesteps before their time, rows that a stream
// starts from before 0, and a stream's first token at 0. "until" was what budgets left of it, which training does not
// use.
void add_kinds(Columns& columns) {
  constexpr int64_t kPooledBefore = int64_t{1} << 40;
  const auto found = columns.find("time");
  if (columns.count("kind") || found == columns.end() || found->second.scalar_type() != at::kLong) return;
  Tensor& time = found->second;
  const auto kinds = [&](RowKind kind) { return at::full({}, static_cast<int64_t>(kind), at::kByte); };
  const Tensor pooled = time < -kPooledBefore / 2;
  columns["kind"] = at::where(
      pooled, kinds(RowKind::pooled),
      at::where(time < 0, kinds(RowKind::start), at::where(time == 0, kinds(RowKind::first), kinds(RowKind::token))));
  time = at::where(pooled, time + kPooledBefore, time);
  columns.erase("until");
}

// In a text's vocabulary every token may be read and predicted; a window begins with a token of its own.
void require_vocabulary(const Config& config, const Vocabulary& vocabulary, const std::string& path) {
  const std::string own = config.task() ? config.task()->unit() : "token";
  if (config.generates() ? vocabulary.unit().name != own : vocabulary.unit().of_tasks)
    fail(fmt::format("{}: its configuration and its vocabulary disagree on whether it reads a task", path));
  if (config.environment() && vocabulary.to_json() != vocabulary_of(config.environment()->shape()).to_json())
    fail(fmt::format("{}: its vocabulary is not that of its environment, {}", path, config.task_name));
  if (config.windows() && vocabulary.bos() < 0)
    fail(path + ": its configuration reads windows, but its vocabulary has no token to begin them with");
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& run_or_file) {
  if (is_file(run_or_file)) {
    try {
      return Checkpoint(run_or_file);
    } catch (const DamagedFile&) {
      if (run_or_file.extension() == ".safetensors") throw;
      fail(run_or_file.string() + ": no checkpoint; name a run's folder, or a file in its folder checkpoints/");
    }
  }
  if (!is_there(run_or_file)) fail(run_or_file.string() + ": no such run or checkpoint");
  auto files = checkpoints_of(run_or_file);
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      if (!is_file(files[i])) throw DamagedFile(files[i].string() + ": not a file that is there");
      return Checkpoint(files[i]);
    } catch (const DamagedFile& error) {  // not of one that another version wrote, or that may not be read
      // A run that goes on meanwhile removes old checkpoints once it has written newer ones.
      if (const auto now = checkpoints_of(run_or_file); !now.empty() && now[0] != files[0]) return open(now[0]);
      std::cerr << "lapse: warning: " << error.what()
                << (i + 1 < files.size() ? "; trying the checkpoint before it" : "") << '\n';
    }
  }
  if (files.empty() && !checkpoints_of(run_or_file.parent_path()).empty())
    fail(fmt::format("{}: name the run's own folder, {}, or one of the checkpoints", run_or_file.string(),
                     run_or_file.parent_path().string()));
  if (files.empty())
    fail(run_or_file.string() +
         ": no checkpoint in its folder checkpoints/; is this a folder that `lapse train --out` made?");
  fail(
      fmt::format("{}: no usable checkpoint among the {} of its folder checkpoints/; put good copies there, or train "
                  "anew with another --out",
                  run_or_file.string(), files.size()));
}

Checkpoint::Checkpoint(const fs::path& path) : path_(path), file_(std::make_shared<SafetensorsFile>(path)) {
  const auto& metadata = file_->metadata();
  if (!metadata.count("lapse.format")) fail(path.string() + ": not a checkpoint of lapse");
  if (metadata.at("lapse.format") != kFormat)
    fail(fmt::format("{}: checkpoint format {}; this version of lapse reads format {}", path.string(),
                     metadata.at("lapse.format"), kFormat));
  auto config = std::make_unique<Config>();
  parse_config(config->sections(), file_->meta("config"), path.string() + ", its configuration");
  try {
    config->check();
  } catch (const Error& error) {
    fail(fmt::format("{}, its configuration: {}", path.string(), error.what()));
  }
  for (const auto& [name, tensor] : file_->tensors())
    if (!name.starts_with("weight.") && !name.starts_with("optimiser.") && !name.starts_with("memory.") &&
        !name.starts_with("feed."))
      fail(fmt::format("{}: its tensor '{}' is none of a checkpoint's", path.string(), name));
  config_ = std::move(config);
  vocabulary_ = Vocabulary::from_json(file_->meta("vocabulary"), path.string() + ", its vocabulary");
  require_vocabulary(*config_, vocabulary_, path.string());
}

std::unique_ptr<Transformer> Checkpoint::model(const MethodOptions& method) const {
  require_sizes(method);
  auto model = fresh_model(method);
  load_weights(*model, method.name());
  return model;
}

std::unique_ptr<Transformer> Checkpoint::fresh_model(const MethodOptions& method) const {
  return std::make_unique<Transformer>(config_->model, method, ends_of(*config_, vocabulary_), config_->train.block,
                                       Random(0, "weights"));
}

// The tensors' shapes before a model of the configured size takes memory: a configuration is only text.
void Checkpoint::require_sizes(const MethodOptions& method) const {
  const ModelConfig& m = config_->model;
  const auto require = [&](const std::string& name, const std::vector<int64_t>& shape) {
    if (file_->tensor(name).shape != shape)
      fail(fmt::format("{}: '{}' does not have the shape that the configuration asks for", file_->path().string(),
                       name));
  };
  const ModelShape shape = shape_of(m, config_->train.block);
  {
    const ShapesOnly guard;
    const ModelEnds ends = ends_of(*config_, vocabulary_);
    Random none(0, "weights");
    const auto input = ends.input(m, none);
    const auto output = ends.output(m, *input, none);
    for (const auto& parameters : {input->parameters(), output->parameters()})
      for (const auto& [name, tensor] : parameters) require("weight." + name, tensor->sizes().vec());
    const auto positions = position_kind(m.positions).make(position_sizes(m, method, shape), none);
    require("weight.position", positions->table().sizes().vec());
  }
  for (int64_t l = 0; l < m.layers; ++l) {
    require(fmt::format("weight.layers.{}.query", l), {m.heads * m.head_width(), m.width});
    require(fmt::format("weight.layers.{}.ff1.weight", l), {m.inner_width(), m.width});
  }
  for (int64_t l = 0; l < m.encoder_layers; ++l)
    require(fmt::format("weight.encoder.layers.{}.ff1.weight", l), {m.inner_width(), m.width});
}

std::set<std::string> Checkpoint::weights_of_method() const {
  const ShapesOnly guard;
  const auto model = fresh_model(config_->method());
  std::set<std::string> names;
  for (size_t l = 0; l < model->layers().size(); ++l)
    for (const auto& [name, tensor] : model->layers()[l].attention().method().parameters())
      names.insert(fmt::format("weight.layers.{}.{}", l, name));
  return names;
}

void Checkpoint::load_weights(Transformer& model, const std::string& method) const {
  std::set<std::string> known = method == config_->method_name ? std::set<std::string>() : weights_of_method();
  for (auto& [name, tensor] : model.parameters()) {
    known.insert("weight." + name);
    copy_tensor(*file_, "weight." + name, *tensor);
  }
  for (const auto& [name, tensor] : file_->tensors())
    if (name.starts_with("weight.") && known.count(name) == 0)
      fail(fmt::format("{}: there is no place in the model for its tensor '{}'", path_.string(), name));
}

void Checkpoint::load_optimiser(Optimiser& optimiser) const {
  for (auto& [slot, tensors] : optimiser.slots())
    for (size_t i = 0; i < tensors.size(); ++i)
      copy_tensor(*file_, fmt::format("optimiser.{}.{}", slot, optimiser.parameters()[i].first), tensors[i]);
  const Tensor steps = to_tensor(file_->tensor("optimiser.steps"));
  const int64_t count = steps.numel() == 1 ? steps.item<int64_t>() : -1;
  if (count < 0 || count > kMostSteps) fail(path_.string() + ": 'optimiser.steps' is not a number of updates");
  optimiser.set_steps(count);
}

std::vector<ModelMemory> Checkpoint::memory(Transformer& model) const {
  // As many parts as it was saved in: each has as many streams as the first.
  const int64_t samples =
      file_->tensor("memory.0.clock").shape.size() == 1 ? file_->tensor("memory.0.clock").shape[0] : 0;
  if (samples == 0 || config_->train.batch % samples != 0)
    fail(fmt::format("{}: 'memory.0.clock' is of {} streams, into which the batch of {} does not divide",
                     file_->path().string(), samples, config_->train.batch));
  const int64_t count = config_->train.batch / samples;
  std::vector<ModelMemory> parts(count);
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto prefix = fmt::format("memory.{}.", p);
    parts[p].clock = to_tensor(file_->tensor(prefix + "clock"));
    parts[p].stored = Stored::inputs;
    for (int64_t l = 0; l < config_->model.layers; ++l) {
      try {
        parts[p].layers.push_back(table(fmt::format("{}{}.", prefix, l), parts[p].clock, samples));
        require_columns(parts[p].layers.back(), model.layers()[l].attention().method());
      } catch (const c10::Error& error) {
        fail(fmt::format("{}: the memory of layer {}: {}", file_->path().string(), l, error.what_without_backtrace()));
      }
    }
  }
  std::set<std::string> places;
  for (size_t p = 0; p < parts.size(); ++p) {
    places.insert(fmt::format("memory.{}.clock", p));
    for (int64_t l = 0; l < config_->model.layers; ++l) places.insert(fmt::format("memory.{}.{}.", p, l));
  }
  // "memory.P.clock", or "memory.P.L." and a column's name.
  const auto is_place = [&](const std::string& name) {
    const size_t column = name.find('.', name.find('.', 7) + 1);
    return places.contains(column == std::string::npos ? name : name.substr(0, column + 1));
  };
  for (const auto& [name, tensor] : file_->tensors())
    if (name.starts_with("memory.") && !is_place(name))
      fail(fmt::format("{}: there is no place in the run for its tensor '{}'", path_.string(), name));
  for (ModelMemory& part : parts) part.to(model.device());
  return parts;
}

Columns Checkpoint::feed() const {
  constexpr std::string_view prefix = "feed.";
  Columns tensors;
  for (const auto& [name, entry] : file_->tensors())
    if (name.starts_with(prefix)) tensors[name.substr(prefix.size())] = to_tensor(entry);
  return tensors;
}

MemoryTable Checkpoint::table(const std::string& prefix, const Tensor& clock, int64_t samples) const {
  Columns columns;
  const auto& all = file_->tensors();
  for (auto next = all.lower_bound(prefix); next != all.end() && next->first.starts_with(prefix); ++next)
    if (next->first != prefix + "offsets") columns[next->first.substr(prefix.size())] = to_tensor(next->second);
  add_kinds(columns);
  const auto table = MemoryTable::restore(to_tensor(file_->tensor(prefix + "offsets")), std::move(columns));
  TORCH_CHECK(table.samples() == samples, "not as many streams as the batch has");
  check_saved(table, clock);
  if (table.rows() == 0) return table;
  const Tensor& hidden = table.column("hidden");
  TORCH_CHECK(hidden.dim() == 2 && hidden.size(1) == config_->model.width && hidden.scalar_type() == at::kFloat,
              "'hidden' must be float32 of the model's width");
  return table;
}

void Checkpoint::save_as(const fs::path& path, const Config& config) const {
  auto metadata = file_->metadata();
  metadata.erase("lapse.checksum");  // written anew
  metadata["config"] = config.to_toml();
  write_safetensors(path, file_->tensors(), metadata);
}

Columns memory_tensors(const std::vector<ModelMemory>& parts, int64_t first) {
  Columns all;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto prefix = fmt::format("memory.{}.", first + static_cast<int64_t>(p));
    all[prefix + "clock"] = parts[p].clock;
    for (size_t l = 0; l < parts[p].layers.size(); ++l) {
      all[fmt::format("{}{}.offsets", prefix, l)] = parts[p].layers[l].offsets();
      for (const auto& [name, values] : parts[p].layers[l].columns())
        all[fmt::format("{}{}.{}", prefix, l, name)] = values;
    }
  }
  return all;
}

fs::path write_checkpoint(const fs::path& run, int64_t update, int64_t keep, const Config& config,
                          const Vocabulary& vocabulary, const Optimiser& optimiser, const Columns& memory,
                          const std::string& state, const Columns& feed) {
  TensorEntries writer;
  for (const auto& [name, tensor] : optimiser.parameters()) writer.add("weight." + name, *tensor);
  for (const auto& [slot, tensors] : optimiser.slots())
    for (size_t i = 0; i < tensors.size(); ++i)
      writer.add(fmt::format("optimiser.{}.{}", slot, optimiser.parameters()[i].first), tensors[i]);
  writer.add("optimiser.steps", at::full({1}, optimiser.steps(), at::kLong));
  for (const auto& [name, tensor] : memory) writer.add(name, tensor);
  for (const auto& [name, tensor] : feed) writer.add("feed." + name, tensor);
  make_folder(checkpoints_folder(run));
  const fs::path path = checkpoint_path(run, update);
  write_safetensors(path, writer.entries(),
                    {{"lapse.format", kFormat},
                     {"config", config.to_toml()},
                     {"vocabulary", vocabulary.to_json()},
                     {"state", state}});
  remove_older_checkpoints(run, update, keep);
  return path;
}

}  // namespace lapse
