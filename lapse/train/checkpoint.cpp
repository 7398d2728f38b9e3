#include "lapse/train/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "lapse/core/error.h"
#include "lapse/model/tensor_file.h"

namespace lapse {
namespace {

using at::Tensor;

constexpr const char* kFormat = "1";

/// Named tensors on their way to a file: owns what the entries view.
class Writer {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    kept_.push_back(tensor.detach().contiguous());
    entries_[name] = to_entry(kept_.back());
  }
  const std::map<std::string, TensorEntry>& entries() const { return entries_; }

 private:
  std::vector<Tensor> kept_;
  std::map<std::string, TensorEntry> entries_;
};

void copy_tensor(const SafetensorsFile& file, const std::string& name, const Tensor& into) {
  const Tensor loaded = to_tensor(file.tensor(name));
  if (loaded.sizes() != into.sizes())
    fail(fmt::format("{}: '{}' does not have the shape that the configuration asks for", file.path().string(), name));
  into.detach().copy_(loaded);
}

}  // namespace

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", none))
    if (entry.path().extension() == ".safetensors" && entry.path().stem().string().rfind("update-", 0) == 0)
      files.push_back(entry.path());
  std::sort(files.rbegin(), files.rend());
  return files;
}

Checkpoint Checkpoint::open(const fs::path& run_or_file) {
  if (fs::is_regular_file(run_or_file)) return Checkpoint(run_or_file);
  if (!fs::exists(run_or_file)) fail(run_or_file.string() + ": no such run or checkpoint");
  for (const auto& file : checkpoints_of(run_or_file)) {
    try {
      return Checkpoint(file);
    } catch (const Error& error) {
      std::cerr << "lapse: warning: " << error.what() << "; trying the checkpoint before it\n";
    }
  }
  fail(run_or_file.string() +
       ": no usable checkpoint in its folder checkpoints/; is this a folder that `lapse train --out` made?");
}

Checkpoint::Checkpoint(const fs::path& path) : file_(std::make_unique<SafetensorsFile>(path)) {
  const auto& metadata = file_->metadata();
  if (!metadata.count("lapse.format")) fail(path.string() + ": not a checkpoint of lapse");
  if (metadata.at("lapse.format") != kFormat)
    fail(fmt::format("{}: checkpoint format {}; this version of lapse reads format {}", path.string(),
                     metadata.at("lapse.format"), kFormat));
  config_ = std::make_unique<Config>();
  parse_config(config_->sections(), file_->meta("config"), path.string() + ", its configuration");
  config_->check();
  vocabulary_ = Vocabulary::from_json(file_->meta("vocabulary"));
}

std::unique_ptr<Transformer> Checkpoint::model() const {
  auto model = std::make_unique<Transformer>(config_->model, config_->method(), vocabulary_.size(),
                                             config_->train.block, Random(0, "weights"));
  load_weights(*model);
  return model;
}

void Checkpoint::load_weights(Transformer& model) const {
  for (auto& [name, tensor] : model.parameters()) copy_tensor(*file_, "weight." + name, *tensor);
}

void Checkpoint::load_optimiser(Optimiser& optimiser) const {
  for (auto& [slot, tensors] : optimiser.slots())
    for (size_t i = 0; i < tensors.size(); ++i)
      copy_tensor(*file_, fmt::format("optimiser.{}.{}", slot, optimiser.parameters()[i].first), tensors[i]);
  optimiser.set_steps(to_tensor(file_->tensor("optimiser.steps")).item<int64_t>());
}

std::vector<ModelMemory> Checkpoint::memory() const {
  std::vector<ModelMemory> parts(config_->train.parts);
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto prefix = fmt::format("memory.{}.", p);
    parts[p].clock = to_tensor(file_->tensor(prefix + "clock"));
    parts[p].training = true;
    for (int64_t l = 0; l < config_->model.layers; ++l) {
      const auto start = fmt::format("{}{}.", prefix, l);
      Columns columns;
      for (const auto& [name, entry] : file_->tensors())
        if (name.rfind(start, 0) == 0 && name != start + "offsets")
          columns[name.substr(start.size())] = to_tensor(entry);
      parts[p].layers.push_back(MemoryTable::restore(to_tensor(file_->tensor(start + "offsets")), std::move(columns)));
    }
  }
  return parts;
}

fs::path write_checkpoint(const fs::path& run, int64_t update, int64_t keep, Config& config,
                          const Vocabulary& vocabulary, const Optimiser& optimiser,
                          const std::vector<ModelMemory>& memory, const std::string& state) {
  Writer writer;
  for (const auto& [name, tensor] : optimiser.parameters()) writer.add("weight." + name, *tensor);
  for (const auto& [slot, tensors] : optimiser.slots())
    for (size_t i = 0; i < tensors.size(); ++i)
      writer.add(fmt::format("optimiser.{}.{}", slot, optimiser.parameters()[i].first), tensors[i]);
  writer.add("optimiser.steps", at::full({1}, optimiser.steps(), at::kLong));
  for (size_t p = 0; p < memory.size(); ++p) {
    writer.add(fmt::format("memory.{}.clock", p), memory[p].clock);
    for (size_t l = 0; l < memory[p].layers.size(); ++l) {
      writer.add(fmt::format("memory.{}.{}.offsets", p, l), memory[p].layers[l].offsets());
      for (const auto& [name, values] : memory[p].layers[l].columns())
        writer.add(fmt::format("memory.{}.{}.{}", p, l, name), values);
    }
  }
  make_folder(run / "checkpoints");
  const fs::path path = run / "checkpoints" / fmt::format("update-{:08}.safetensors", update);
  write_safetensors(path, writer.entries(),
                    {{"lapse.format", kFormat},
                     {"config", config_to_toml(config.sections())},
                     {"vocabulary", vocabulary.to_json()},
                     {"state", state}});
  const auto all = checkpoints_of(run);
  for (size_t i = keep; i < all.size(); ++i) fs::remove(all[i]);
  return path;
}

}  // namespace lapse
